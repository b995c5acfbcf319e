"""Snapshots on this node's disk: fetch, upload, transfer between nodes, process images."""
