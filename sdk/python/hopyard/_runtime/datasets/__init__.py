"""Partitioned data: code shared by the scheduler with its catalog of data sets, the node agents and `hopyard data`."""
