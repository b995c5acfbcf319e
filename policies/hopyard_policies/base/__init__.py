"""Shared parts of the policies: job creation, amendments of runs, parameter checks, and a base class for cluster views."""
