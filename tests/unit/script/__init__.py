"""Tests of script mode: scripts that call `hopyard.report`."""
