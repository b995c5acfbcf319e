"""What `hopyard doctor` looks at: this host, its disks, the installed packages, a cluster, and a search from start to end."""
