"""The hyperparameter generator service."""
