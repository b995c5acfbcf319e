"""Model hopper parallelism (Cerebro): the data stay, the models hop."""
