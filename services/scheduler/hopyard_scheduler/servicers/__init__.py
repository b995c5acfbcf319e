"""The scheduler's gRPC services.

Each handler converts the request, calls the component that does the work, and converts the result.
"""
