"""Programs that the recorded live experiments train: they take no time and need no library."""
