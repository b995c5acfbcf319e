"""The snapshot store: deletion, quota, garbage collection."""
