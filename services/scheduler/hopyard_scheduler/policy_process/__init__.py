"""Policies in processes of their own: who dials in, what they are told, and how their memories are made again."""
