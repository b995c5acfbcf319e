"""Shared parts of the policies: job creation, amendments, parameter checks and a cluster proxy."""
