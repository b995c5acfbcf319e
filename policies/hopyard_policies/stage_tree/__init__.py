"""Stage trees: what trials have in common is trained once."""
