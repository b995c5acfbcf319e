"""A rule for times that are not known, and machines that die: it plans anew with what it has learned, as the policy does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from hopyard_policies.mop.dispatch import Following, Rule
from hopyard_policies.mop.estimates import Estimates
from hopyard_policies.mop.problem import Problem, Unit

CHANGED: Final = 1.1
"""Estimates that moved by this factor, one compared with another, are reason to decide by them anew."""

UNEXPECTED: Final = 2.0
"""The same for a plan that is followed: it stands a lot, and a new one would not fit what has been trained already as well."""


class Online:
    """Makes another rule anew whenever what it was made from has changed.

    Args:
        problem: What is to be done; its costs and speeds are what is believed in the beginning.
        make: Makes the rule for what is left.
        learns: Whether costs and speeds are estimated from the units that end; the given ones are then not looked at.
    """

    def __init__(self, problem: Problem, make: Callable[[Problem], Rule], learns: bool = False) -> None:
        if learns:
            problem = replace(problem, costs=[1.0] * len(problem.costs), speeds=[1.0] * len(problem.speeds))
        self._make, self._learns, self._problem = make, learns, problem
        self._estimates = Estimates()
        self._visited = [set(done) for done in problem.done] or [set() for _ in problem.costs]
        self._idle: set[int] = set()
        self._ends: dict[int, tuple[Unit, float]] = {}  # What runs on which machine, and when that should be over.
        self._rule: Rule | None = None

    def free(self, config: int) -> None:
        """See `Rule`."""
        self._idle.add(config)
        if self._rule is not None:
            self._rule.free(config)

    def start(self, machines: Sequence[int], now: float = 0.0) -> list[tuple[int, Unit]]:
        """See `Rule`; `now` is counted as `ended` and `died` do."""
        if self._rule is None:
            self._rule = self._make(self._left(now))
            for config in sorted(self._idle):
                self._rule.free(config)
        started = self._rule.start(machines)
        for machine, unit in started:
            self._idle.discard(unit.config)
            self._visited[unit.config].add(unit.partition)
            self._ends[machine] = (unit, now + self._problem.time(*unit, machine))
        return started

    def ended(self, machine: int, seconds: float) -> None:
        """Says that the unit on a machine has ended, after so many seconds."""
        unit, _ = self._ends.pop(machine)
        if self._learns:
            self._estimates.learn(unit.config, machine, self._problem.sizes[unit.partition], seconds)
            self._compare()

    def died(self, machine: int) -> None:
        """Says that a machine is gone, and what it trained is lost; `free` follows for the configuration."""
        held = [tuple(m for m in machines if m != machine) for machines in self._problem.holders]
        self._problem, self._rule = replace(self._problem, holders=held), None
        if machine in self._ends:
            unit, _ = self._ends.pop(machine)
            self._visited[unit.config].discard(unit.partition)

    def _compare(self) -> None:
        costs = self._estimates.costs(range(len(self._problem.costs)))
        speeds = [self._estimates.speed(machine) for machine in range(len(self._problem.speeds))]
        limit = UNEXPECTED if isinstance(self._rule, Following) else CHANGED
        if _spread(costs, self._problem.costs) > limit or _spread(speeds, self._problem.speeds) > limit:
            self._problem, self._rule = replace(self._problem, costs=costs, speeds=speeds), None

    def _left(self, now: float) -> Problem:
        configs, machines = [0.0] * len(self._visited), [0.0] * len(self._problem.speeds)
        for machine, (unit, end) in self._ends.items():
            configs[unit.config] = machines[machine] = max(end - now, 0.0)
        done = [frozenset(visited) for visited in self._visited]
        return replace(self._problem, done=done, config_free=configs, machine_free=machines)


def _spread(new: Sequence[float], old: Sequence[float]) -> float:
    """By which factor some values moved against others; that all of them did alike is nothing."""
    moved = [after / before for after, before in zip(new, old, strict=True)]
    return max(moved) / min(moved)
