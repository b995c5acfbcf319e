"""The journal format: converts events to journal records and back."""
