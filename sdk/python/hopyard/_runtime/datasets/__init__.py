"""Partitioned data: code shared by the catalog, the node agents and `hopyard data`."""
