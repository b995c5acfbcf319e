"""Chooses units with a rule (`Rule`) and makes a new rule when measured times differ from the estimates, or when a slot fails."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from hopyard_policies.mop.schedule.dispatch import PlanFollower, Rule
from hopyard_policies.mop.schedule.estimates import Estimates
from hopyard_policies.mop.schedule.problem import TrainingUnit, VisitProblem

CHANGED: Final = 1.1
"""Replan when the ratio of two estimated costs, or of two estimated speeds, changes by this factor."""

UNEXPECTED: Final = 2.0
"""The same limit while a plan is followed. It is larger, because a new plan must start from units that the old plan chose."""


class Online:
    """Decides which unit each idle slot starts, by a rule for the remaining problem. It replaces the rule when needed.

    A new rule is made when a slot fails, or when the ratio of two estimated costs or of two estimated speeds has changed by the factor
    `CHANGED` (`UNEXPECTED` while a plan is followed).

    Args:
        problem: The problem; its costs and speeds are the initial estimates.
        make: Creates a rule for the remaining problem.
        estimates: Source of costs and speeds, updated by finished units; None: use those of the problem.
        configs: The names of configurations in the estimates; empty: their indices.
        slots: The names of slots in the estimates; empty: their indices.
        running: Running units by slot, which are not units of the problem; None: no unit is running.

    Attributes:
        visited: The partitions that each configuration has visited or is visiting.
        idle: Configurations that may start a unit.
        running: The running unit of each slot.
    """

    def __init__(
        self,
        problem: VisitProblem,
        make: Callable[[VisitProblem], Rule],
        estimates: Estimates | None = None,
        configs: Sequence[Hashable] = (),
        slots: Sequence[Hashable] = (),
        running: Mapping[int, TrainingUnit] | None = None,
    ) -> None:
        self._make, self._estimates = make, estimates
        self._configs = configs or range(len(problem.costs))
        self._slots = slots or range(len(problem.speeds))
        if estimates is not None:
            costs, speeds = estimates.of(self._configs, self._slots)
            problem = replace(problem, costs=costs, speeds=speeds)
        self._problem = problem
        self.visited = [set(done) for done in problem.done] or [set() for _ in problem.costs]
        self.idle: set[int] = set()
        self.running = dict(running or {})
        self._ends = {slot: problem.free_slot(slot) for slot in self.running}  # The expected end of each running unit.
        self._rule: Rule | None = None
        self._given: Rule | None = None

    def free(self, config: int) -> None:
        """Mark a configuration as idle, so that it may start a unit."""
        self.idle.add(config)
        if self._rule is not None:
            self._rule.free(config)

    def start(self, slots: Sequence[int], now: float = 0.0) -> list[tuple[int, TrainingUnit]]:
        """Decide which idle slots start a unit now; see `Rule.start`.

        Args:
            slots: All idle slots, ascending.
            now: The time in seconds, on the same clock as in `left`.
        """
        if self._rule is None:
            self._rule = self._make(self.left(now))
            for config in sorted(self.idle):
                self._rule.free(config)
        started = self._rule.start(slots)
        for slot, unit in started:
            self.idle.discard(unit.config)
            self.visited[unit.config].add(unit.partition)
            self.running[slot] = unit
            self._ends[slot] = now + self._problem.time(*unit, slot)
        return started

    def ended(self, slot: int, seconds: float) -> None:
        """Record that the unit on a slot has finished. Discard the present rule if the estimates have changed too much (see the class).

        Args:
            slot: The index of the slot; a slot without a running unit raises `KeyError`.
            seconds: The duration of the unit.
        """
        unit = self.running.pop(slot)
        if self._estimates is not None:
            config, size = self._configs[unit.config], self._problem.sizes[unit.partition]
            self._estimates.learn(config, self._slots[slot], size, seconds)
            self._compare(*self._estimates.of(self._configs, self._slots))

    def died(self, slot: int) -> None:
        """Record the failure of a slot. If a unit was running on the slot, that unit must be trained again.

        The caller must then call `free` with the configuration of that unit.
        """
        held = [tuple(m for m in slots if m != slot) for slots in self._problem.holders]
        self._problem, self._rule = replace(self._problem, holders=held), None
        if slot in self.running:
            unit = self.running.pop(slot)
            self.visited[unit.config].discard(unit.partition)

    def _compare(self, costs: list[float], speeds: list[float]) -> None:
        limit = UNEXPECTED if isinstance(self._rule, PlanFollower) else CHANGED
        if _spread(costs, self._problem.costs) > limit or _spread(speeds, self._problem.speeds) > limit:
            self._problem, self._rule = replace(self._problem, costs=costs, speeds=speeds), None

    @property
    def follows(self) -> bool:
        """Whether the present rule was given by `follow`."""
        return self._rule is not None and self._rule is self._given

    def follow(self, rule: Rule) -> None:
        """Use the given rule for the remaining problem until a slot fails or the estimates change too much (see the class).

        Then a rule of the constructor's `make` replaces it.
        """
        self._rule = self._given = rule
        for config in sorted(self.idle):
            rule.free(config)

    def left(self, now: float) -> VisitProblem:
        """Return the problem with the remaining units. Its times are seconds from `now`, which is on the same clock as in `start`."""
        configs, slots = [0.0] * len(self.visited), [0.0] * len(self._problem.speeds)
        for slot, unit in self.running.items():
            configs[unit.config] = slots[slot] = max(self._ends[slot] - now, 0.0)
        done = [frozenset(visited) for visited in self.visited]
        return replace(self._problem, done=done, config_free=configs, slot_free=slots)


def _spread(new: Sequence[float], old: Sequence[float]) -> float:
    """Return the largest new / old divided by the smallest; 1 if all values have changed by the same factor."""
    moved = [after / before for after, before in zip(new, old, strict=True)]
    return max(moved) / min(moved)
