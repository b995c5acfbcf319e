"""Learning-curve predictors."""
