"""Draws plots from the data of `hopyard.plots.data`, one module per kind. Only this package imports matplotlib (extra `plot`)."""
