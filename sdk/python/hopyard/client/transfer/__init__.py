"""Transfers between a cluster and the user's disk: blobs, snapshots, logs of jobs, exported experiments."""
