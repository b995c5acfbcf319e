"""The AppStat service: it stores the journal, statistics, snapshots and everything else that must survive a restart."""
