"""Experiments whose plugins harm their processes, a client that measures its calls meanwhile, and the evaluation of both."""
