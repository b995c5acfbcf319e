"""Policies in processes of their own: what travels, the view on the other side, and the process that serves a policy."""
