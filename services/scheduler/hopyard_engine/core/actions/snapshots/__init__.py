"""Uploads of snapshots to the store, and deletion of snapshots when a quota is exceeded."""
