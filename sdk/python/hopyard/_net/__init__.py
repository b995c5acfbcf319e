"""Internal: gRPC channels, retries and servers. Users import none of it."""
