"""Hopyard's tests."""
