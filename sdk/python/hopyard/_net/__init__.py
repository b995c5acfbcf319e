"""Internal code for gRPC: client channels, retries, servers and the main loop of services. Users must not import it."""
