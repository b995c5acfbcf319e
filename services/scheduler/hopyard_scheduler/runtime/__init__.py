"""The event loop of the scheduler: batches, journal, effects, recovery."""
