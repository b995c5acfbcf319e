"""Partitions of data sets on this node."""
