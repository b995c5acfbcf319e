"""Population based training (PBT): the worst jobs of a population are replaced by changed copies of the best."""

from hopyard_policies.pbt.policy import PbtPolicy

__all__ = ["PbtPolicy"]
