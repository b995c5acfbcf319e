"""The architecture, held by machine."""
