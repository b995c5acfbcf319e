"""Jobs that train on changing numbers of machines."""

from __future__ import annotations

from hopyard_policies.elastic.elastic import Elastic
from hopyard_policies.elastic.scaling import Scaling

__all__ = ["Elastic", "Scaling", "made"]


def made(option: object) -> Elastic | None:
    """What serves a policy's parameter `elastic`; None without one."""
    return None if option is None else Elastic(option)
