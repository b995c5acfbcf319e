"""Sessions of node agents, and questions to nodes."""
