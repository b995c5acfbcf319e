"""The AppStat service: journal, statistics and snapshots."""
