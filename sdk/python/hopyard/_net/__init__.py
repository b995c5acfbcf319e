"""Internal: gRPC channels, retries and servers. Not for import by users."""
