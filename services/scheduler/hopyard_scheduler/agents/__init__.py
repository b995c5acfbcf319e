"""Sessions of node agents, and queries to nodes."""
