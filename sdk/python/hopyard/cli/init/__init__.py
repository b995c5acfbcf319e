"""What `hopyard init` does: reads a script without running it, suggests, and writes an experiment file with a word on each setting."""
