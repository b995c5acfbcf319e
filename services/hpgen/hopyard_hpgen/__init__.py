"""The hyperparameter generator service: it runs the generators that propose configurations."""
