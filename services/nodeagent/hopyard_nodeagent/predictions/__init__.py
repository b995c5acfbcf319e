"""Runs predictors on this node, in low-priority processes next to the training."""
