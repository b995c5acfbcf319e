"""The conditions of a simulation: what things cost, what goes wrong, what machines there are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

from hopyard.errors import InvalidInput

MOST_SLOTS: Final = 100_000
"""Machines that a simulation may have: more would take it very long to begin."""


def _need(allowed: bool, name: str, value: object, range_: str) -> None:
    if not allowed:
        raise InvalidInput(f"{name} must be {range_}, found {value!r}")


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds (>= 0) that things take beside training.

    Attributes:
        start: From the decision to start a job that has no snapshot until it trains.
        resume: The same for one that goes on from a snapshot.
        snapshot: For each snapshot, on the machine.
        suspend: From the last snapshot until the machine is free, when a run leaves a job that is to go on.
        latency: From a run to the scheduler, and back again.
        prediction: From a question to a predictor to its answer.
        solution: From a question to a solver to its answer. It may think for as long as the policy lets it by the real clock, which
            decides about what a solver says that is cut off by it.
        detection: From a node's failure until the scheduler takes it for lost.
    """

    start: float = 0.0
    resume: float = 0.0
    snapshot: float = 0.0
    suspend: float = 0.0
    latency: float = 0.0
    prediction: float = 0.0
    solution: float = 0.0
    detection: float = 0.0

    def __post_init__(self) -> None:
        """Checks.

        Raises:
            InvalidInput: A cost is negative or not finite.
        """
        for field in fields(self):
            value = getattr(self, field.name)
            _need(0 <= value < math.inf, f"cost of {field.name}", value, "a number of seconds >= 0")


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong, by chance that follows from the simulation's seed.

    Attributes:
        straggling: Each run takes 1 + |z| times as long, z normal with this standard deviation (ASHA, appendix A.1).
        drop: Chance that a run is lost within a second of training (the same appendix's "per time unit").
        node_failures: Failures of a node per second, exponentially distributed.
        downtime: Seconds until a node that failed is back; infinite: never.
        noise: Standard deviation of normal noise on each report.
    """

    straggling: float = 0.0
    drop: float = 0.0
    node_failures: float = 0.0
    downtime: float = 60.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        """Checks.

        Raises:
            InvalidInput: A number is out of range.
        """
        for name in ("straggling", "node_failures", "noise"):
            _need(0 <= getattr(self, name) < math.inf, name, getattr(self, name), "a finite number >= 0")
        _need(0 <= self.drop < 1, "drop", self.drop, "a chance in [0, 1)")
        _need(self.downtime >= 0, "downtime", self.downtime, "a number of seconds >= 0")


@dataclass(frozen=True, slots=True)
class Fleet:
    """The machines.

    Attributes:
        slots: How many there are, 1 .. `MOST_SLOTS`.
        per_node: How many of them share a node, and fail together, >= 1.
        speeds: How fast each is (> 0; 2: twice as fast as the traces' machine), repeated over the machines.
    """

    slots: int
    per_node: int = 1
    speeds: Sequence[float] = (1.0,)

    def __post_init__(self) -> None:
        """Checks.

        Raises:
            InvalidInput: A number is out of range.
        """
        _need(self.slots >= 1, "slots", self.slots, "at least 1")
        _need(self.slots <= MOST_SLOTS, "slots", self.slots, f"at most {MOST_SLOTS}")
        _need(self.per_node >= 1, "machines per node", self.per_node, "at least 1")
        _need(len(self.speeds) > 0, "speeds", self.speeds, "one number or more")
        for speed in self.speeds:
            _need(0 < speed < math.inf, "speed", speed, "a finite number > 0")

    def nodes(self) -> list[tuple[str, tuple[str, ...]]]:
        """Names of nodes, with the names of their machines."""
        count = math.ceil(self.slots / self.per_node)
        width = len(str(count))
        names = [f"node{number:0{width}}" for number in range(1, count + 1)]
        sizes = [min(self.per_node, self.slots - index * self.per_node) for index in range(count)]
        return [(node, tuple(f"{node}/{n}" for n in range(size))) for node, size in zip(names, sizes, strict=True)]
