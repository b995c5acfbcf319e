"""The state of the cluster: nodes, slots, and the division of slots among streams."""
