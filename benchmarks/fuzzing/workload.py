"""The workload of random searches. A metric's value identifies the whole state; a program reports it at certain positions only."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import Any

from hopyard.sequences import as_sequence
from hopyard_simulator import CurveWorkload, Lesson

Configuration = Mapping[str, Any]


@dataclass(frozen=True)
class Program:
    """When a program reports, and when it ends by itself.

    Attributes:
        positions: Positions at which it reports and can stop, ascending; it trains nothing beyond the last one.
        ends_early: In how many of ten configurations it ends before the last position.
        strange: In how many of a hundred reports the metric is not finite.
    """

    positions: tuple[int, ...]
    ends_early: int = 0
    strange: int = 0


@dataclass(frozen=True)
class Task:
    """The configurations of a search, the position at which a job is complete, the program, and the seconds of a position."""

    configurations: Sequence[Configuration]
    max_position: int
    program: Program
    seconds: float = 1.0


class Reporting(CurveWorkload):
    """The workload of a task for the simulator."""

    def __init__(self, task: Task) -> None:
        super().__init__(lambda _given, _position: 0.0, task.configurations, task.max_position)
        self._task = task

    def lesson(self, hyperparameters: Configuration) -> Lesson:
        """Return the reports of a configuration. Each value follows from all hyperparameters in force up to its position."""
        return _lesson(json.dumps(hyperparameters, sort_keys=True), self._task.program, self._task.seconds)


@cache
def _lesson(written: str, program: Program, seconds: float) -> Lesson:
    given = json.loads(written)
    constant = blake2b(json.dumps(given.get("decay", 0)).encode(), digest_size=4).digest()[0]
    positions = program.positions
    if len(positions) > 1 and constant % 10 < program.ends_early:
        positions = positions[: 1 + constant % (len(positions) - 1)]
    states = _states(given, positions[-1])
    pace = seconds * (1 + constant % 3)
    return Lesson(
        [_value(states[position - 1], program.strange) for position in positions],
        [pace * (after - before) for before, after in zip((0, *positions), positions, strict=False)],
        positions,
    )


def _states(given: Configuration, end: int) -> list[bytes]:
    """Return the state after each position up to `end`. Configurations with equal values up to a position have equal states there."""
    sequences = [(name, as_sequence(value)) for name, value in sorted(given.items())]
    found, state = [], b""
    for position in range(end):
        state = blake2b(
            state + repr([(name, one.value(position)) for name, one in sequences]).encode(), digest_size=8
        ).digest()
        found.append(state)
    return found


def _value(state: bytes, strange: int) -> float:
    number = int.from_bytes(state, "big")
    if number % 100 < strange:
        return (math.nan, math.inf, -math.inf)[number // 100 % 3]
    return number / 2**64
