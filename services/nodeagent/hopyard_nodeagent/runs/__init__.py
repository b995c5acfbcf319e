"""Runs on this node: their processes, their channels to the scheduler, watchdogs, and logs."""
