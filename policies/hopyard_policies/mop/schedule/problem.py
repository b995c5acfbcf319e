"""The scheduling problem of model hopper parallelism, its schedules, and a check of their invariants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

TOLERANCE = 1e-9
"""Two times are equal if they differ by at most this fraction of the makespan."""


class TrainingUnit(NamedTuple):
    """A training unit: one configuration trained on one partition, both as indices into the lists of a `VisitProblem`."""

    config: int
    partition: int


class ScheduledUnit(NamedTuple):
    """A training unit on a slot, with its start and end in seconds from the beginning of the schedule (see `VisitProblem`)."""

    unit: TrainingUnit
    slot: int
    start: float
    end: float


@dataclass(frozen=True)
class VisitProblem:
    """Configurations that visit partitions, each exactly once, on slots that hold them (Cerebro, sections 5.1 and 5.5).

    Configurations, partitions and slots are indices into the lists below. The time of a unit is the configuration's cost times
    the partition's size divided by the slot's speed. All slots of a node hold the partitions that the node holds. Times are
    seconds from now.

    Attributes:
        costs: The cost of each configuration, above 0.
        sizes: The size of each partition, above 0.
        speeds: The speed of each slot, above 0.
        holders: The slots that hold each partition, ascending. Units of a partition without a slot are in no
            schedule.
        done: The partitions that each configuration has visited; empty: none.
        config_free: The time at which each configuration can start its next unit, because a running unit ends then;
            empty: now.
        slot_free: The time at which each slot can start its next unit; empty: now.
        config_after: The training time of each configuration after this epoch; empty: 0. It is in no schedule, but
            configurations with more of it are more urgent.
    """

    costs: Sequence[float]
    sizes: Sequence[float]
    speeds: Sequence[float]
    holders: Sequence[Sequence[int]]
    done: Sequence[frozenset[int] | set[int]] = ()
    config_free: Sequence[float] = ()
    slot_free: Sequence[float] = ()
    config_after: Sequence[float] = ()

    def time(self, config: int, partition: int, slot: int) -> float:
        """Return the seconds that a unit of a configuration and a partition takes on a slot.

        Args:
            config: The index of the configuration.
            partition: The index of the partition.
            slot: The index of the slot.
        """
        return self.costs[config] * self.sizes[partition] / self.speeds[slot]

    @cached_property
    def units(self) -> tuple[TrainingUnit, ...]:
        """The remaining units, those not in `done`, whose partition some slot holds; by configuration, then by partition."""
        there = [partition for partition, slots in enumerate(self.holders) if slots]
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
        """Whether some partition is held by more than one slot."""
        return any(len(slots) > 1 for slots in self.holders)

    def free_config(self, config: int) -> float:
        """Return the time, in seconds from now, at which a configuration can start its next unit."""
        return self.config_free[config] if self.config_free else 0.0

    def free_slot(self, slot: int) -> float:
        """Return the time, in seconds from now, at which a slot can start its next unit."""
        return self.slot_free[slot] if self.slot_free else 0.0


def to_plain(problem: VisitProblem) -> dict[str, Any]:
    """Return a problem as JSON values for the solver, without `config_after`. `from_plain` converts them back."""
    return {
        "costs": list(problem.costs),
        "sizes": list(problem.sizes),
        "speeds": list(problem.speeds),
        "holders": [list(slots) for slots in problem.holders],
        "done": [sorted(visited) for visited in problem.done],
        "config_free": list(problem.config_free),
        "slot_free": list(problem.slot_free),
    }


def from_plain(payload: object) -> VisitProblem:
    """Return the problem that `to_plain` converted to JSON values.

    Raises:
        ValueError: The payload is not a valid problem; the message says what is wrong.
    """
    if not isinstance(payload, Mapping):
        raise ValueError(f"a problem is an object, found {payload!r:.80}")
    try:
        problem = VisitProblem(
            costs=[float(cost) for cost in payload["costs"]],
            sizes=[float(size) for size in payload["sizes"]],
            speeds=[float(speed) for speed in payload["speeds"]],
            holders=[[int(slot) for slot in held] for held in payload["holders"]],
            done=[frozenset(map(int, visited)) for visited in payload.get("done", ())],
            config_free=[float(moment) for moment in payload.get("config_free", ())],
            slot_free=[float(moment) for moment in payload.get("slot_free", ())],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"this is no problem: {type(error).__name__}: {error}") from error
    configs, partitions, slots = len(problem.costs), len(problem.sizes), len(problem.speeds)
    whole = len(problem.holders) == partitions and all(
        len(given) in (0, count)
        for given, count in ((problem.done, configs), (problem.config_free, configs), (problem.slot_free, slots))
    )
    there = all(0 <= slot < slots for held in problem.holders for slot in held)
    positive = all(value > 0 for value in (*problem.costs, *problem.sizes, *problem.speeds))
    if not (whole and there and positive):
        raise ValueError(
            "this is no problem: lists of different lengths, slots that are not there, or costs that are not > 0"
        )
    return problem


Hosting = Sequence[int]
"""The slot that should train each unit of a problem, in the order of the units."""


@dataclass(frozen=True)
class VisitSchedule:
    """Units of a problem with their slots and times, in order of start.

    Attributes:
        placed: The units.
        complete: False if units of the problem are missing, for example because the last slot that holds their partition
            failed.
    """

    placed: tuple[ScheduledUnit, ...]
    complete: bool = True

    @cached_property
    def makespan(self) -> float:
        """The end of the last unit, in seconds; 0 without units."""
        return max((placed.end for placed in self.placed), default=0.0)


class InvalidScheduleError(ValueError):
    """A schedule violates an invariant of model hopper parallelism; the message says which and where."""


def check(problem: VisitProblem, schedule: VisitSchedule) -> None:
    """Check that a schedule satisfies every invariant of Cerebro, section 3.1.

    Each remaining unit that can be trained occurs in the schedule exactly once, on a slot that holds its partition. No slot and
    no configuration has two units at a time, or a unit before it is free. No unit is shorter than its time in the problem.

    Raises:
        InvalidScheduleError: An invariant is violated.
    """
    slack = TOLERANCE * max(schedule.makespan, 1e-300)
    counts: dict[TrainingUnit, int] = dict.fromkeys(problem.units, 0)
    for placed in schedule.placed:
        unit, slot = placed.unit, placed.slot
        if unit not in counts:
            raise InvalidScheduleError(f"{unit} is not to be trained, or nobody can")
        counts[unit] += 1
        if slot not in problem.holders[unit.partition]:
            raise InvalidScheduleError(f"{unit} is on slot {slot}, which does not hold its partition")
        if placed.end - placed.start < problem.time(*unit, slot) - slack:
            raise InvalidScheduleError(f"{unit} takes {placed.end - placed.start:g}, too little on slot {slot}")
    for unit, count in counts.items():
        if count != 1:
            raise InvalidScheduleError(f"{unit} is trained {count} times")
    _check_apart("slot", slack, [(p.slot, p) for p in schedule.placed], problem.free_slot)
    _check_apart("configuration", slack, [(p.unit.config, p) for p in schedule.placed], problem.free_config)


def _check_apart(what: str, slack: float, owned: list[tuple[int, ScheduledUnit]], free: object) -> None:
    assert callable(free)
    last: dict[int, float] = {}
    for owner, placed in sorted(owned, key=lambda item: (item[1].start, item[1].end)):
        if placed.start < last.get(owner, free(owner)) - slack:
            raise InvalidScheduleError(f"{what} {owner} starts {placed.unit} before it is free")
        last[owner] = placed.end
