"""The Hopyard node agent: it runs training processes on the slots of one host and stores their snapshots."""
