"""Tests that start real servers and processes on loopback."""
