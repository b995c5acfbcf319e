"""The journalled state of one stream: experiments, jobs, runs, snapshots and learning curves."""
