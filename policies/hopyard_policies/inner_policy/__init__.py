"""Tuners: inner policies that decide up to which position trials are trained, while an outer policy schedules the training."""
