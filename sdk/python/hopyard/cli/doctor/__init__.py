"""The checks of `hopyard doctor`: this host, its disk, the installed packages, a running cluster, and a complete test search."""
