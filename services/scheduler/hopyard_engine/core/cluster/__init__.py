"""The state of the cluster: nodes, slots, and how they are divided."""
