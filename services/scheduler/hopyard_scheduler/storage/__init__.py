"""The snapshot store: deletion of snapshots, the quota, and garbage collection."""
