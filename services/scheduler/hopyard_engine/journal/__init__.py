"""The journal format: converts events to records and back."""
