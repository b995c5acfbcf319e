"""Policies in processes.

The package has the connections of the processes, the state deltas (changes of a stream's state that are sent to its policy
process), and the reconstruction of policy state from the journal.
"""
