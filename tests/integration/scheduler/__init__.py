"""Tests of the scheduler over real gRPC, with a real database and real runners."""
