"""Internal: training processes, policy processes, bundles, snapshots, CRIU, partitioned data. Users import none of it."""
