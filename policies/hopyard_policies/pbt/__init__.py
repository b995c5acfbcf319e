"""Population based training."""

from hopyard_policies.pbt.policy import PbtPolicy

__all__ = ["PbtPolicy"]
