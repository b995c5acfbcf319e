"""The values that each kind of plot shows, as plain dataclasses, and the functions that compute them from searches."""
