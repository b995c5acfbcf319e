"""Logs on this node: reading, and limits of their size."""
