"""Handlers of a stream's events, one module for each kind of event. `dispatch.handle` selects the handler."""
