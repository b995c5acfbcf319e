"""Generated stubs of the contracts (package hopyard.v1)."""
