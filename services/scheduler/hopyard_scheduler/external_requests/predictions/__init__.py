"""Requests to predictors of learning curves, which run on nodes."""
