"""Experiments that leave a cluster in a file, and come to another."""
