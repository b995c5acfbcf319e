"""The scheduler's gRPC services: each handler converts, calls the domain, and converts back."""
