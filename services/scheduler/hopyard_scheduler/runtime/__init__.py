"""The event loop of the scheduler: batches of events, the journal, execution of effects, and recovery."""
