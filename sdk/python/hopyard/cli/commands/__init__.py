"""The commands, by what they are for. Each module's `register` adds its own; what they need is imported when they run."""
