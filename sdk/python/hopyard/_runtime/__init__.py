"""Internal code for training and policy processes: process mains, bundles, snapshots, CRIU, partitioned data."""
