"""A rule for times that are not known, and machines that die: it plans anew with what it has learned, as the policy does."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from hopyard_policies.mop.schedule.dispatch import Following, Rule
from hopyard_policies.mop.schedule.estimates import Estimates
from hopyard_policies.mop.schedule.problem import TrainingUnit, VisitProblem

CHANGED: Final = 1.1
"""Estimates that moved by this factor, one compared with another, are reason to decide by them anew."""

UNEXPECTED: Final = 2.0
"""The same for a plan that is followed: it stands a lot, and a new one would not fit what has been trained already as well."""


class Online:
    """Makes another rule anew whenever what it was made from has changed.

    Args:
        problem: What is to be done; its costs and speeds are what is believed in the beginning.
        make: Makes the rule for what is left.
        estimates: Costs and speeds are taken from here, and learned from units that end; None: those of the problem are good.
        configs: By what names the estimates know configurations; empty: by their numbers.
        machines: The same of machines.
        running: What runs already, by machine; not among the problem's units.

    Attributes:
        visited: By configuration, the partitions that it has visited, and the one that it visits now.
        idle: Configurations that may start a unit.
        running: By machine, what it trains.
    """

    def __init__(
        self,
        problem: VisitProblem,
        make: Callable[[VisitProblem], Rule],
        estimates: Estimates | None = None,
        configs: Sequence[Hashable] = (),
        machines: Sequence[Hashable] = (),
        running: Mapping[int, TrainingUnit] | None = None,
    ) -> None:
        self._make, self._estimates = make, estimates
        self._configs = configs or range(len(problem.costs))
        self._machines = machines or range(len(problem.speeds))
        if estimates is not None:
            costs, speeds = estimates.of(self._configs, self._machines)
            problem = replace(problem, costs=costs, speeds=speeds)
        self._problem = problem
        self.visited = [set(done) for done in problem.done] or [set() for _ in problem.costs]
        self.idle: set[int] = set()
        self.running = dict(running or {})
        self._ends = {machine: problem.free_machine(machine) for machine in self.running}  # When each should be over.
        self._rule: Rule | None = None
        self._given: Rule | None = None

    def free(self, config: int) -> None:
        """See `Rule`."""
        self.idle.add(config)
        if self._rule is not None:
            self._rule.free(config)

    def start(self, machines: Sequence[int], now: float = 0.0) -> list[tuple[int, TrainingUnit]]:
        """See `Rule`; `now` is counted as `ended` and `died` do."""
        if self._rule is None:
            self._rule = self._make(self.left(now))
            for config in sorted(self.idle):
                self._rule.free(config)
        started = self._rule.start(machines)
        for machine, unit in started:
            self.idle.discard(unit.config)
            self.visited[unit.config].add(unit.partition)
            self.running[machine] = unit
            self._ends[machine] = now + self._problem.time(*unit, machine)
        return started

    def ended(self, machine: int, seconds: float) -> None:
        """Says that the unit on a machine has ended, after so many seconds."""
        unit = self.running.pop(machine)
        if self._estimates is not None:
            config, size = self._configs[unit.config], self._problem.sizes[unit.partition]
            self._estimates.learn(config, self._machines[machine], size, seconds)
            self._compare(*self._estimates.of(self._configs, self._machines))

    def died(self, machine: int) -> None:
        """Says that a machine is gone, and what it trained is lost; `free` follows for the configuration."""
        held = [tuple(m for m in machines if m != machine) for machines in self._problem.holders]
        self._problem, self._rule = replace(self._problem, holders=held), None
        if machine in self.running:
            unit = self.running.pop(machine)
            self.visited[unit.config].discard(unit.partition)

    def _compare(self, costs: list[float], speeds: list[float]) -> None:
        limit = UNEXPECTED if isinstance(self._rule, Following) else CHANGED
        if _spread(costs, self._problem.costs) > limit or _spread(speeds, self._problem.speeds) > limit:
            self._problem, self._rule = replace(self._problem, costs=costs, speeds=speeds), None

    @property
    def follows(self) -> bool:
        """Whether the rule is the one that `follow` was given."""
        return self._rule is not None and self._rule is self._given

    def follow(self, rule: Rule) -> None:
        """Goes by a rule for what is left now, until that has changed."""
        self._rule = self._given = rule
        for config in sorted(self.idle):
            rule.free(config)

    def left(self, now: float) -> VisitProblem:
        """What is still to be started, counted from now."""
        configs, machines = [0.0] * len(self.visited), [0.0] * len(self._problem.speeds)
        for machine, unit in self.running.items():
            configs[unit.config] = machines[machine] = max(self._ends[machine] - now, 0.0)
        done = [frozenset(visited) for visited in self.visited]
        return replace(self._problem, done=done, config_free=configs, machine_free=machines)


def _spread(new: Sequence[float], old: Sequence[float]) -> float:
    """By which factor some values moved against others; that all of them did alike is nothing."""
    moved = [after / before for after, before in zip(new, old, strict=True)]
    return max(moved) / min(moved)
