"""Requests to learning-curve predictors, which run on nodes."""
