"""Readers of files that may be damaged or hostile: archives, compressed data, and unpacked code."""
