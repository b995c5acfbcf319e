"""Snapshots of processes, as far as no process is dumped for it."""
