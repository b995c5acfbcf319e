"""The scheduler over real gRPC, a real database and real runners."""
