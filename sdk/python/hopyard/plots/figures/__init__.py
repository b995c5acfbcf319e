"""Plots drawn from plain values. This package alone imports matplotlib (extra `plot`); see `hopyard.plots.figure`."""
