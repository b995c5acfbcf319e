"""The RPC layer of the client: gRPC channels to the services, and converters between messages and the client's types."""
