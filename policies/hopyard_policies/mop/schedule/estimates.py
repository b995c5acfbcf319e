"""Running estimates of what configurations cost and how fast machines are, from the units that ended."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Final

DOUBT: Final = 0.3
"""How many units' worth of doubt there is that a machine is faster or slower than others."""


class Estimates:
    """Costs and speeds, of which each unit shows the ratio: its seconds are cost x size / speed.

    A machine that showed nothing yet counts as fast as others (speed 1), a configuration that showed nothing yet costs the
    mean of those that did. Each unit improves the estimate of its configuration and of its machine.
    """

    def __init__(self) -> None:
        self._costs: dict[Hashable, float] = {}  # Logarithms, as all here.
        self._speeds: dict[Hashable, float] = {}
        self._by_config: dict[Hashable, list[tuple[Hashable, float]]] = {}
        self._by_machine: dict[Hashable, list[tuple[Hashable, float]]] = {}

    def learn(self, config: Hashable, machine: Hashable, size: float, seconds: float) -> None:
        """Takes account of a unit that ended: a partition of a size (> 0), in so many seconds."""
        if not 0 < seconds < math.inf:
            return
        pace = math.log(seconds / size)
        units = self._by_config.setdefault(config, [])
        units.append((machine, pace))
        others = self._by_machine.setdefault(machine, [])
        others.append((config, pace))
        speeds, costs = self._speeds, self._costs
        costs[config] = math.fsum(pace + speeds.get(where, 0.0) for where, pace in units) / len(units)
        speeds[machine] = math.fsum(costs[which] - pace for which, pace in others) / (len(others) + DOUBT)

    def know(self, configs: Iterable[Hashable], machines: Iterable[Hashable]) -> bool:
        """Whether all of these have shown something."""
        return all(each in self._costs for each in configs) and all(each in self._speeds for each in machines)

    def of(self, configs: Iterable[Hashable], machines: Iterable[Hashable]) -> tuple[list[float], list[float]]:
        """What some configurations cost, and how fast some machines are."""
        seen = [math.exp(cost) for cost in self._costs.values()]
        usual = math.fsum(seen) / len(seen) if seen else 1.0
        costs = [math.exp(self._costs[config]) if config in self._costs else usual for config in configs]
        return costs, [math.exp(self._speeds.get(machine, 0.0)) for machine in machines]
