"""Internal: training processes, policy processes, bundles, snapshots, CRIU, partitioned data. Not for import by users."""
