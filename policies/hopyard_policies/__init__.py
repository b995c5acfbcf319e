"""The built-in scheduling policies."""
