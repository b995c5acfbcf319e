"""Model hopper parallelism (Cerebro): models move between nodes, data partitions stay."""

from hopyard_policies.mop.policy import MopPolicy

__all__ = ["MopPolicy"]
