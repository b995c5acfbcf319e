"""Sessions of node agents, and queries that the scheduler sends to nodes."""
