"""Predictors on this node, in low-priority processes."""
