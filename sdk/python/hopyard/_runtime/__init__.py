"""Internal: training processes, bundles, snapshot files, CRIU. Users import none of it."""
