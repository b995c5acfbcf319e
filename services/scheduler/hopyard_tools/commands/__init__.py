"""Commands that read the journal: `hopyard replay`, `hopyard events`. The CLI finds them by entry point."""
