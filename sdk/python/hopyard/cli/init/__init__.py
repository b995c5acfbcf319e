"""The parts of `hopyard init`: analyze a script without running it, suggest a space, and write a commented experiment file."""
