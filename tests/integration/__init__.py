"""Tests that start real servers and processes on the loopback interface."""
