"""Actions on snapshots: when they are uploaded, and which are deleted when a quota is exceeded."""
