"""The live loop around the engine: events in, records to the journal, effects out, and recovery after a restart."""
