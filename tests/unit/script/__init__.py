"""Tests of script mode."""
