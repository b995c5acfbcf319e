"""Shared parts of the policies.

They are: job creation, amendments (requests to change the end of a run), parameter checks, and a base class for cluster views,
which show a tuner the cluster in a modified form.
"""
