"""Handlers of events."""
