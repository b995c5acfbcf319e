"""The state of one stream: its experiments, jobs, runs, snapshots and learning curves."""
