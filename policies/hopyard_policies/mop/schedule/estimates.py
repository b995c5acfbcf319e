"""Running estimates of the costs of configurations and the speeds of slots, from finished units."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Final

DOUBT: Final = 0.3
"""Weight, in units, of the prior that all slots are equally fast."""


class Estimates:
    """Estimates costs and speeds from the times of units: seconds = cost * size / speed.

    The cost belongs to a configuration, the size to a partition, the speed to a slot. A slot without measurements has speed 1. A
    configuration without measurements has the mean cost of the measured ones. Each unit improves the estimates of its
    configuration and its slot.
    """

    def __init__(self) -> None:
        self._costs: dict[Hashable, float] = {}  # All values are logarithms.
        self._speeds: dict[Hashable, float] = {}
        self._by_config: dict[Hashable, list[tuple[Hashable, float]]] = {}
        self._by_slot: dict[Hashable, list[tuple[Hashable, float]]] = {}

    def learn(self, config: Hashable, slot: Hashable, size: float, seconds: float) -> None:
        """Add the time of a finished unit. A time that is not positive and finite is ignored.

        Args:
            config: The configuration.
            slot: The slot on which it trained.
            size: The size of the partition (> 0), relative to the mean.
            seconds: The time of the unit.
        """
        if not 0 < seconds < math.inf:
            return
        pace = math.log(seconds / size)
        units = self._by_config.setdefault(config, [])
        units.append((slot, pace))
        others = self._by_slot.setdefault(slot, [])
        others.append((config, pace))
        speeds, costs = self._speeds, self._costs
        costs[config] = math.fsum(pace + speeds.get(where, 0.0) for where, pace in units) / len(units)
        speeds[slot] = math.fsum(costs[which] - pace for which, pace in others) / (len(others) + DOUBT)

    def know(self, configs: Iterable[Hashable], slots: Iterable[Hashable]) -> bool:
        """Return whether at least one finished unit was measured for each of these configurations and on each of these slots."""
        return all(each in self._costs for each in configs) and all(each in self._speeds for each in slots)

    def of(self, configs: Iterable[Hashable], slots: Iterable[Hashable]) -> tuple[list[float], list[float]]:
        """Return the costs of the configurations (seconds for size 1 and speed 1) and the speeds of the slots, in the given orders.

        Without any measurement all costs and speeds are 1.
        """
        seen = [math.exp(cost) for cost in self._costs.values()]
        usual = math.fsum(seen) / len(seen) if seen else 1.0
        costs = [math.exp(self._costs[config]) if config in self._costs else usual for config in configs]
        return costs, [math.exp(self._speeds.get(slot, 0.0)) for slot in slots]
