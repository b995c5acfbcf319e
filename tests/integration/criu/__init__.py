"""Processes that are dumped and restored without a cluster."""
