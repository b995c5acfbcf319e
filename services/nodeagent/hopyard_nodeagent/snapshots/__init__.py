"""Snapshots on this node's disk: fetching, uploading, transfer between nodes, process images."""
