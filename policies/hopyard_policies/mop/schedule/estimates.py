"""Running estimates of the costs of configurations and the speeds of machines, from finished units."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Final

DOUBT: Final = 0.3
"""Weight, in units, of the prior that all machines are equally fast."""


class Estimates:
    """Estimates costs and speeds from the times of units: seconds = cost * size / speed.

    A machine without measurements has speed 1. A configuration without measurements has the mean cost of the measured
    ones. Each unit improves the estimates of its configuration and its machine.
    """

    def __init__(self) -> None:
        self._costs: dict[Hashable, float] = {}  # All values are logarithms.
        self._speeds: dict[Hashable, float] = {}
        self._by_config: dict[Hashable, list[tuple[Hashable, float]]] = {}
        self._by_machine: dict[Hashable, list[tuple[Hashable, float]]] = {}

    def learn(self, config: Hashable, machine: Hashable, size: float, seconds: float) -> None:
        """Add the time of a finished unit on a partition of a size (> 0)."""
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
        """Return whether all of these configurations and machines have measurements."""
        return all(each in self._costs for each in configs) and all(each in self._speeds for each in machines)

    def of(self, configs: Iterable[Hashable], machines: Iterable[Hashable]) -> tuple[list[float], list[float]]:
        """Return the costs of the configurations and the speeds of the machines."""
        seen = [math.exp(cost) for cost in self._costs.values()]
        usual = math.fsum(seen) / len(seen) if seen else 1.0
        costs = [math.exp(self._costs[config]) if config in self._costs else usual for config in configs]
        return costs, [math.exp(self._speeds.get(machine, 0.0)) for machine in machines]
