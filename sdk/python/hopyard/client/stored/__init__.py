"""Reads the data directory of a cluster that does not run: no service starts, nothing listens, and nothing is changed."""
