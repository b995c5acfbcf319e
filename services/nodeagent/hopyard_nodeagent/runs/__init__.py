"""Runs on this node: their processes, channels to the scheduler, watchdogs and logs."""
