"""Model hopper parallelism (Cerebro): the data stay, the models hop."""

from hopyard_policies.mop.policy import MopPolicy

__all__ = ["MopPolicy"]
