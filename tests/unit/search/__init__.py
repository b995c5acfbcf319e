"""Tests of searches with objective functions."""
