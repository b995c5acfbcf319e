"""Uploads of snapshots, and their deletion when a quota is exceeded."""
