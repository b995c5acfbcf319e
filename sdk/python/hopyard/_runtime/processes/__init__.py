"""Processes that run foreign code: which ones belong together, what they may use, and the main loop of a worker."""
