"""Rules that choose the next unit of idle machines: Hopyard's rule, Cerebro's randomized rule, and following a plan."""

from __future__ import annotations

import math
import random
from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from hopyard_policies.mop.schedule.problem import Hosting, TrainingUnit, VisitProblem, VisitSchedule

EXCHANGED: Final = 4
"""Number of unassigned configurations, longest first, for which machines may exchange their choices."""


class Rule(Protocol):
    """Decides what idle machines start. It keeps track of the remaining units of its problem."""

    def free(self, config: int) -> None:
        """Mark a configuration as idle, so that it may start a unit. Initially none is idle."""

    def start(self, machines: Sequence[int]) -> list[tuple[int, TrainingUnit]]:
        """Decide which idle machines start a unit now.

        Args:
            machines: All idle machines, ascending.

        Returns:
            Pairs of machine and unit. These units are no longer remaining, and their configurations no longer idle.
        """


class Longest:
    """Idle machines choose in order of largest remaining load; each takes the longest idle configuration that needs it.

    The longest configuration is the one with the most remaining time, so the critical machine and the critical
    configuration come first. If several machines are idle and one finds no configuration, earlier ones change their
    choices to make room if possible. As many machines as possible therefore work, which makes equal units in rounds
    optimal. Machines also exchange choices for a longer configuration that is unassigned.

    With replicas, a machine that holds several partitions prefers the partition that would take longest if its fastest
    holder failed, unless the longest configuration has as much left as the machine itself. A machine with nothing left
    may take a unit of another machine if it holds the partition and finishes the unit before the other machine would
    have reached its last unit.

    Args:
        problem: The remaining problem.
        hosting: The machine that should train each unit.
        weights: A factor for the remaining time of each configuration; empty: 1.
    """

    def __init__(self, problem: VisitProblem, hosting: Hosting, weights: Sequence[float] = ()) -> None:
        self._problem = problem
        self._weights = weights
        self._remaining = list(problem.config_after) or [0.0] * len(problem.costs)
        self._load = [problem.free_machine(machine) for machine in range(len(problem.speeds))]
        self._todo: list[dict[int, list[int]]] = [{} for _ in problem.speeds]
        self._idle: list[tuple[float, int]] = []  # Idle configurations, longest remaining time first,
        self._keys: dict[int, tuple[float, int]] = {}  # and their keys in that list.
        self._fresh: list[tuple[float, int]] = []  # Configurations that became idle since the last choice,
        self._poor: set[int] = set()  # and machines that found nothing then.
        self._steals = problem.replicated
        costs, sizes, speeds = problem.costs, problem.sizes, problem.speeds
        for (config, partition), machine in zip(problem.units, hosting, strict=True):
            seconds = costs[config] * sizes[partition] / speeds[machine]
            self._remaining[config] += seconds
            self._load[machine] += seconds
            self._todo[machine].setdefault(config, []).append(partition)
        # By partition: the remaining work, and the joint speed of its holders without the fastest one.
        self._left = [0.0] * len(sizes)
        self._others = [
            math.fsum(speeds[m] for m in held) - max((speeds[m] for m in held), default=0.0) for held in problem.holders
        ]
        self._held: list[set[int]] = [set() for _ in speeds]  # The partitions that each machine should train on.
        if self._steals:
            for (config, partition), machine in zip(problem.units, hosting, strict=True):
                self._left[partition] += costs[config] * sizes[partition]
                self._held[machine].add(partition)

    def free(self, config: int) -> None:
        """See `Rule`."""
        key = (-self._remaining[config] * self._weight(config), config)
        insort(self._idle, key)
        self._keys[config] = key
        self._fresh.append(key)

    def start(self, machines: Sequence[int]) -> list[tuple[int, TrainingUnit]]:
        """See `Rule`."""
        load = self._load
        self._fresh.sort()
        if len(machines) > 1:
            machines = sorted(machines, key=load.__getitem__, reverse=True)
        chosen: dict[int, int] = {}
        for machine in machines:
            if self._todo[machine] and not self._choose(machine, chosen):
                self._make_room(machine, chosen, set())
        if len(chosen) > 1 and self._idle:
            self._exchange(chosen)
        started = [(machine, self._take(machine, machine, config)) for config, machine in chosen.items()]
        if self._steals and self._idle:
            working = set(chosen.values())
            started += [taken for machine in machines if machine not in working for taken in self._steal(machine)]
        self._poor = set(machines).difference(machine for machine, _ in started)
        self._fresh.clear()
        return started

    def _weight(self, config: int) -> float:
        return self._weights[config] if self._weights else 1.0

    def _choose(self, machine: int, chosen: dict[int, int]) -> bool:
        """Let a machine choose an idle configuration; one that found none last time chooses among the new ones only."""
        todo, keys = self._todo[machine], self._keys
        candidates = self._fresh if machine in self._poor else self._idle
        if len(todo) * 4 < len(candidates):
            key = min((keys[config] for config in todo if config in keys), default=None)
        else:
            key = next((key for key in candidates if key[1] in todo and key[1] in keys), None)
        if key is None:
            return False
        if len(self._held[machine]) > 1 and -key[0] < self._load[machine]:
            key = self._riskiest(machine, candidates) or key
        self._pick(key)
        chosen[key[1]] = machine
        return True

    def _riskiest(self, machine: int, candidates: Sequence[tuple[float, int]]) -> tuple[float, int] | None:
        """Return the longest candidate for the partition most at risk, among the needed ones; None: no candidate."""
        todo, keys = self._todo[machine], self._keys
        for partition in self._by_risk(self._held[machine]):
            for key in candidates:
                if key[1] in keys and partition in todo.get(key[1], ()):
                    return key
        return None

    def _by_risk(self, partitions: Iterable[int]) -> list[int]:
        """Sort partitions by the time they would take if the fastest holder failed, longest first; ties by size."""
        left, others, sizes = self._left, self._others, self._problem.sizes
        return sorted(partitions, key=lambda q: (-left[q] / others[q] if others[q] else 0.0, -sizes[q], q))

    def _exchange(self, chosen: dict[int, int]) -> None:
        """Exchange choices so that a longer configuration is assigned instead of a shorter one."""
        taken = {config: (-self._remaining[config] * self._weight(config), config) for config in chosen}
        for key in self._idle[:EXCHANGED]:
            if key[0] >= max(taken.values())[0]:
                return
            dropped = self._displace(key[1], key[0], chosen, taken, set())
            if dropped is not None:
                self._pick(key)
                taken[key[1]] = key
                back = taken.pop(dropped)
                insort(self._idle, back)
                self._keys[dropped] = back

    def _displace(
        self, config: int, key: float, chosen: dict[int, int], taken: dict[int, tuple[float, int]], tried: set[int]
    ) -> int | None:
        """Assign a configuration at the cost of one shorter than `key`; return that one, or None if this is impossible."""
        for other, machine in list(chosen.items()):
            if config in self._todo[machine] and other not in tried:
                tried.add(other)
                if taken[other][0] > key:
                    del chosen[other]
                    chosen[config] = machine
                    return other
                dropped = self._displace(other, key, chosen, taken, tried)
                if dropped is not None:
                    chosen[config] = machine
                    return dropped
        return None

    def _pick(self, key: tuple[float, int]) -> None:
        self._idle.remove(key)
        del self._keys[key[1]]

    def _make_room(self, machine: int, chosen: dict[int, int], tried: set[int]) -> bool:
        """Assign a configuration to a machine by changing the choices of others (an augmenting path); return whether it worked."""
        todo = self._todo[machine]
        for config, other in list(chosen.items()):
            if config in todo and config not in tried:
                tried.add(config)
                if self._choose(other, chosen) or self._make_room(other, chosen, tried):
                    chosen[config] = machine
                    return True
        return False

    def _take(self, machine: int, host: int, config: int) -> TrainingUnit:
        """Remove a unit of a configuration from the load of `host`, so that `machine` trains it."""
        partitions = self._todo[host][config]
        problem = self._problem
        held = partitions if machine == host else [q for q in partitions if machine in problem.holders[q]]
        partition = held[0] if len(held) == 1 else self._by_risk(held)[0]
        self._left[partition] -= problem.costs[config] * problem.sizes[partition]
        partitions.remove(partition)
        if not partitions:
            del self._todo[host][config]
        seconds = problem.time(config, partition, host)
        self._load[host] -= seconds
        self._remaining[config] -= seconds
        return TrainingUnit(config, partition)

    def _steal(self, machine: int) -> list[tuple[int, TrainingUnit]]:
        """Take over a unit of the most loaded machine that this one can help; return a list with at most one item."""
        problem = self._problem
        # Loads only decrease, so what it could not take over before, it cannot take over now.
        candidates = self._fresh if machine in self._poor else self._idle
        candidates = [key for key in candidates if key[1] in self._keys]
        for host in sorted(range(len(self._todo)) if candidates else (), key=lambda other: (-self._load[other], other)):
            todo = self._todo[host]
            if host == machine or not todo:
                continue
            for key in candidates:
                held = [q for q in todo.get(key[1], ()) if machine in problem.holders[q]]
                if held and min(problem.time(key[1], q, machine) for q in held) < self._load[host]:
                    self._pick(key)
                    return [(machine, self._take(machine, host, key[1]))]
        return []


class Randomized:
    """Algorithm 1 of Cerebro with replicas (section 5.5): each idle machine starts a random unit that it can train.

    Args:
        problem: The remaining problem.
        rng: The source of random numbers.
    """

    def __init__(self, problem: VisitProblem, rng: random.Random) -> None:
        self._rng = rng
        self._idle: set[int] = set()
        self._holders = problem.holders
        self._held: list[list[int]] = [[] for _ in problem.speeds]
        for partition, machines in enumerate(problem.holders):
            for machine in machines:
                self._held[machine].append(partition)
        self._left: list[set[int]] = [set() for _ in problem.sizes]
        for config, partition in problem.units:
            self._left[partition].add(config)

    def free(self, config: int) -> None:
        """See `Rule`."""
        self._idle.add(config)

    def start(self, machines: Sequence[int]) -> list[tuple[int, TrainingUnit]]:
        """See `Rule`."""
        started = []
        for machine in machines:
            units = [(c, q) for q in self._held[machine] for c in sorted(self._left[q] & self._idle)]
            if units:
                unit = TrainingUnit(*self._rng.choice(units))
                self._left[unit.partition].remove(unit.config)
                self._idle.remove(unit.config)
                started.append((machine, unit))
        return started


class Following:
    """Follows a plan: machines start their planned units in order, and wait if the configuration runs elsewhere.

    Args:
        problem: The remaining problem.
        plan: A schedule with all its units.
    """

    def __init__(self, problem: VisitProblem, plan: VisitSchedule) -> None:
        left = set(problem.units)
        self._todo: list[deque[TrainingUnit]] = [deque() for _ in problem.speeds]
        self._idle: set[int] = set()
        for placed in sorted(plan.placed, key=lambda placed: placed.start):
            if placed.unit in left:
                self._todo[placed.machine].append(placed.unit)

    def free(self, config: int) -> None:
        """See `Rule`."""
        self._idle.add(config)

    def start(self, machines: Sequence[int]) -> list[tuple[int, TrainingUnit]]:
        """See `Rule`."""
        started = []
        for machine in machines:
            todo = self._todo[machine]
            if todo and todo[0].config in self._idle:
                self._idle.remove(todo[0].config)
                started.append((machine, todo.popleft()))
        return started
