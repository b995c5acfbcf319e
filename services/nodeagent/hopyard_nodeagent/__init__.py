"""The Hopyard node agent: runs training processes and takes their snapshots."""
