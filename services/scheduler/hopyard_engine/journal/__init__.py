"""The format of the journal: events to records and back."""
