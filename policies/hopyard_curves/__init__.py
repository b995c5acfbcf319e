"""The built-in learning-curve predictors."""
