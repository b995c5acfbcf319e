"""The built-in generators, found by entry point like external ones."""
