"""Shows an experiment while it runs, for `run`, `resume`, `extend --watch` and `jobs --watch`, and prints its result."""
