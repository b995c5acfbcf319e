"""Tests of the package `hopyard_tools.projections`."""
