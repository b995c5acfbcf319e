"""Tests of process snapshots that need no dump of a process."""
