"""Policies in processes: the connections of the processes, state deltas, and reconstruction of policy state from the journal."""
