"""Clusters on this computer: services as child processes, and the lock of their data directory."""
