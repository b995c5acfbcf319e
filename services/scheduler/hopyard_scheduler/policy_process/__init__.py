"""Policies in processes: their streams, state deltas, and the rebuilding of their state from the journal."""
