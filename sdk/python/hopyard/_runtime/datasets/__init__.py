"""Partitioned data: code shared by the catalog of data sets, the node agents and `hopyard data`."""
