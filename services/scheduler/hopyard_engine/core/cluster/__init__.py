"""The state of the cluster: nodes, slots, and the division of slots between streams."""
