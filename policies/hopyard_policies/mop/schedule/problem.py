"""The scheduling problem of model hopper parallelism, schedules for it, and the check that a schedule keeps the invariants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

TOLERANCE = 1e-9
"""How far, in proportion to the makespan, two moments may lie apart and be the same."""


class TrainingUnit(NamedTuple):
    """A training unit: one configuration trained on one partition, both by number."""

    config: int
    partition: int


class Placed(NamedTuple):
    """A training unit on a machine, and when."""

    unit: TrainingUnit
    machine: int
    start: float
    end: float


@dataclass(frozen=True)
class VisitProblem:
    """Configurations that visit partitions, each exactly once, on machines that hold these (sections 5.1 and 5.5 of Cerebro).

    The time of a unit is the configuration's cost times the partition's size over the machine's speed. Two machines of one
    node both hold what the node holds. All is counted from now, time 0.

    Attributes:
        costs: Of each configuration, above 0.
        sizes: Of each partition, above 0.
        speeds: Of each machine, above 0.
        holders: For each partition, the machines that hold it, ascending; none: its units are left out of every schedule.
        done: For each configuration, the partitions that it has visited already; empty: none of them has visited any.
        config_free: When each configuration can start its next unit (a unit under way ends then); empty: all now.
        machine_free: When each machine can start its next unit; empty: all now.
        config_after: How long each configuration will still train when it has been everywhere: its epochs to come; empty: none.
            They are in no schedule, but whoever has more to come is more urgent.
    """

    costs: Sequence[float]
    sizes: Sequence[float]
    speeds: Sequence[float]
    holders: Sequence[Sequence[int]]
    done: Sequence[frozenset[int] | set[int]] = ()
    config_free: Sequence[float] = ()
    machine_free: Sequence[float] = ()
    config_after: Sequence[float] = ()

    def time(self, config: int, partition: int, machine: int) -> float:
        """How long a unit takes on a machine."""
        return self.costs[config] * self.sizes[partition] / self.speeds[machine]

    @cached_property
    def units(self) -> tuple[TrainingUnit, ...]:
        """The units that are still to be trained and that some machine can train, by configuration, then by partition."""
        there = [partition for partition, machines in enumerate(self.holders) if machines]
        if not self.done:
            return tuple(TrainingUnit(config, partition) for config in range(len(self.costs)) for partition in there)
        return tuple(
            TrainingUnit(config, partition)
            for config, visited in enumerate(self.done)
            for partition in there
            if partition not in visited
        )

    @cached_property
    def replicated(self) -> bool:
        """Whether some partition can be visited on more than one machine."""
        return any(len(machines) > 1 for machines in self.holders)

    def free_config(self, config: int) -> float:
        """When a configuration can start its next unit."""
        return self.config_free[config] if self.config_free else 0.0

    def free_machine(self, machine: int) -> float:
        """When a machine can start its next unit."""
        return self.machine_free[machine] if self.machine_free else 0.0


def to_plain(problem: VisitProblem) -> dict[str, Any]:
    """A problem as a solver is told of it."""
    return {
        "costs": list(problem.costs),
        "sizes": list(problem.sizes),
        "speeds": list(problem.speeds),
        "holders": [list(machines) for machines in problem.holders],
        "done": [sorted(visited) for visited in problem.done],
        "config_free": list(problem.config_free),
        "machine_free": list(problem.machine_free),
    }


def from_plain(payload: object) -> VisitProblem:
    """The problem that `to_plain` made plain.

    Raises:
        ValueError: It is none; says what is wrong.
    """
    if not isinstance(payload, Mapping):
        raise ValueError(f"a problem is an object, found {payload!r:.80}")
    try:
        problem = VisitProblem(
            costs=[float(cost) for cost in payload["costs"]],
            sizes=[float(size) for size in payload["sizes"]],
            speeds=[float(speed) for speed in payload["speeds"]],
            holders=[[int(machine) for machine in held] for held in payload["holders"]],
            done=[frozenset(map(int, visited)) for visited in payload.get("done", ())],
            config_free=[float(moment) for moment in payload.get("config_free", ())],
            machine_free=[float(moment) for moment in payload.get("machine_free", ())],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"this is no problem: {type(error).__name__}: {error}") from error
    configs, partitions, machines = len(problem.costs), len(problem.sizes), len(problem.speeds)
    whole = len(problem.holders) == partitions and all(
        len(given) in (0, count)
        for given, count in ((problem.done, configs), (problem.config_free, configs), (problem.machine_free, machines))
    )
    there = all(0 <= machine < machines for held in problem.holders for machine in held)
    positive = all(value > 0 for value in (*problem.costs, *problem.sizes, *problem.speeds))
    if not (whole and there and positive):
        raise ValueError(
            "this is no problem: lists of different lengths, machines that are not there, or costs that are not > 0"
        )
    return problem


Hosting = Sequence[int]
"""For each of a problem's units, in their order, the machine that is to train it."""


@dataclass(frozen=True)
class VisitSchedule:
    """What runs where and when, in order of start.

    `complete` says whether all units of the problem are there: an online run whose last holder died has some left.
    """

    placed: tuple[Placed, ...]
    complete: bool = True

    @cached_property
    def makespan(self) -> float:
        """When the last unit ends; 0 for none."""
        return max((placed.end for placed in self.placed), default=0.0)


class InvalidScheduleError(ValueError):
    """A schedule breaks an invariant of model hopper parallelism; the message says which, and where."""


def check(problem: VisitProblem, schedule: VisitSchedule) -> None:
    """Checks that a schedule keeps every invariant of section 3.1.

    Each unit that is left and can be trained is there exactly once, on a machine that holds its partition; no machine and no
    configuration has two units at once, nor one before it is free; no unit ends before it can be done.

    Raises:
        InvalidScheduleError: It does not.
    """
    slack = TOLERANCE * max(schedule.makespan, 1e-300)
    counts: dict[TrainingUnit, int] = dict.fromkeys(problem.units, 0)
    for placed in schedule.placed:
        unit, machine = placed.unit, placed.machine
        if unit not in counts:
            raise InvalidScheduleError(f"{unit} is not to be trained, or nobody can")
        counts[unit] += 1
        if machine not in problem.holders[unit.partition]:
            raise InvalidScheduleError(f"{unit} is on machine {machine}, which does not hold its partition")
        if placed.end - placed.start < problem.time(*unit, machine) - slack:
            raise InvalidScheduleError(f"{unit} takes {placed.end - placed.start:g}, too little on machine {machine}")
    for unit, count in counts.items():
        if count != 1:
            raise InvalidScheduleError(f"{unit} is trained {count} times")
    _check_apart("machine", slack, [(p.machine, p) for p in schedule.placed], problem.free_machine)
    _check_apart("configuration", slack, [(p.unit.config, p) for p in schedule.placed], problem.free_config)


def _check_apart(what: str, slack: float, owned: list[tuple[int, Placed]], free: object) -> None:
    assert callable(free)
    last: dict[int, float] = {}
    for owner, placed in sorted(owned, key=lambda item: (item[1].start, item[1].end)):
        if placed.start < last.get(owner, free(owner)) - slack:
            raise InvalidScheduleError(f"{what} {owner} starts {placed.unit} before it is free")
        last[owner] = placed.end
