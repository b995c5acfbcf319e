"""Partitions of data sets on this node: reading, downloading and checking them."""
