"""Readers of compressed data and archives of unknown origin, with limits of memory, size and ratio."""
