"""Tuners: inner policies that decide how far trials are wanted, while an outer policy trains them."""
