"""The built-in generators, found by entry point like everyone else's."""
