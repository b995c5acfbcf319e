"""The checks of `hopyard doctor`: this host, disk, agents, installed packages, a running cluster, a whole test search."""
