"""The conditions of a simulation: the duration of operations, faults, and slots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

from hopyard.errors import InvalidInput

MOST_SLOTS: Final = 100_000
"""Maximum number of slots; with more, a simulation takes very long to start."""


def _need(allowed: bool, name: str, value: object, range_: str) -> None:
    if not allowed:
        raise InvalidInput(f"{name} must be {range_}, found {value!r}")


@dataclass(frozen=True, slots=True)
class Costs:
    """The virtual seconds that operations take, apart from training. Each given one is finite and 0 or more.

    Attributes:
        start: From the decision to start a job without a snapshot until it trains.
        resume: From the decision to resume a job from a snapshot until it trains.
        snapshot: To take a snapshot; the slot is occupied meanwhile.
        suspend: From the last snapshot until the slot is free, when a run ends and its job will continue later.
        latency: To transfer a message between a run and the scheduler, in either direction.
        prediction: From a request to a predictor to the answer.
        solution: From a request to a solver to the answer. A solver has also a time limit in real time, so a result
            that the limit cuts off depends on the computer.
        detection: From the failure of a node until the scheduler considers it lost.
        evaluation: The evaluation of a model on one partition, on a slot on which training takes as long as recorded. None: a third
            of the model's last training iteration, because an evaluation has a forward pass and no backward pass, which takes about
            twice as long.
    """

    start: float = 0.0
    resume: float = 0.0
    snapshot: float = 0.0
    suspend: float = 0.0
    latency: float = 0.0
    prediction: float = 0.0
    solution: float = 0.0
    detection: float = 0.0
    evaluation: float | None = None

    def __post_init__(self) -> None:
        """Raise InvalidInput if a cost is negative or not finite."""
        for field in fields(self):
            value = getattr(self, field.name)
            _need(value is None or 0 <= value < math.inf, f"cost of {field.name}", value, "a number of seconds >= 0")


@dataclass(frozen=True, slots=True)
class Faults:
    """The random faults of a simulation. The seed of the simulation determines them.

    Attributes:
        straggling: Standard deviation, 0 or more. Each run takes 1 + |z| times as long, where z is normal with this
            standard deviation (ASHA, appendix A.1).
        drop: Probability that a run is lost within one second of training, in [0, 1) ("per time unit" in the same
            appendix).
        node_failures: Failure rate of each node per second, 0 or more. The time to a failure is exponentially
            distributed.
        downtime: Seconds until a failed node returns, 0 or more; infinite: never.
        noise: Standard deviation of normal noise that is added to the value of the searched metric in each report, 0 or more.
            Further metrics have no noise.
    """

    straggling: float = 0.0
    drop: float = 0.0
    node_failures: float = 0.0
    downtime: float = 60.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        """Raise InvalidInput if a number is out of its range."""
        for name in ("straggling", "node_failures", "noise"):
            _need(0 <= getattr(self, name) < math.inf, name, getattr(self, name), "a finite number >= 0")
        _need(0 <= self.drop < 1, "drop", self.drop, "a chance in [0, 1)")
        _need(self.downtime >= 0, "downtime", self.downtime, "a number of seconds >= 0")


@dataclass(frozen=True, slots=True)
class Fleet:
    """The slots of a simulated cluster and their nodes.

    Attributes:
        slots: The number of slots, 1 to `MOST_SLOTS`.
        per_node: The number of slots on a node, 1 or more. The slots of a node fail together.
        speeds: The speed of each slot, greater than 0, relative to the slot on which the learning curves of the
            workload were recorded (2: twice as fast). The list is repeated cyclically if it is shorter than the number
            of slots.
    """

    slots: int
    per_node: int = 1
    speeds: Sequence[float] = (1.0,)

    def __post_init__(self) -> None:
        """Raise InvalidInput if a number is out of its range."""
        _need(self.slots >= 1, "slots", self.slots, "at least 1")
        _need(self.slots <= MOST_SLOTS, "slots", self.slots, f"at most {MOST_SLOTS}")
        _need(self.per_node >= 1, "slots per node", self.per_node, "at least 1")
        _need(len(self.speeds) > 0, "speeds", self.speeds, "one number or more")
        for speed in self.speeds:
            _need(0 < speed < math.inf, "speed", speed, "a finite number > 0")

    def nodes(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return the id of each node with the ids of its slots."""
        count = math.ceil(self.slots / self.per_node)
        width = len(str(count))
        names = [f"node{number:0{width}}" for number in range(1, count + 1)]
        sizes = [min(self.per_node, self.slots - index * self.per_node) for index in range(count)]
        return [(node, tuple(f"{node}/{n}" for n in range(size))) for node, size in zip(names, sizes, strict=True)]
