"""Partitioned data: what the catalog, the node agents and `hopyard data` share."""
