"""Which units idle machines start next: the rule of Hopyard, the randomized one of Cerebro, and that of a plan to be followed."""

from __future__ import annotations

import math
import random
from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from hopyard_policies.mop.schedule.problem import Hosting, TrainingUnit, VisitProblem, VisitSchedule

EXCHANGED: Final = 4
"""Configurations that nobody took, the longest ones, for which machines may change their choices at a time."""


class Rule(Protocol):
    """Decides, whenever machines are idle, what they start. It keeps what is left to do, from the problem's units on."""

    def free(self, config: int) -> None:
        """Says that a configuration is idle: it may start a unit from now on. None is until then."""

    def start(self, machines: Sequence[int]) -> list[tuple[int, TrainingUnit]]:
        """Decides what idle machines start now.

        Args:
            machines: All that are idle, ascending.

        Returns:
            Machine and unit of those that start one. They are no longer left, and their configurations not idle.
        """


class Longest:
    """Idle machines choose in order of largest remaining load; each takes the longest idle configuration that still needs it.

    Longest is the one with most remaining time. What is critical comes first on both sides. Where several machines are idle at
    once and one of them finds nothing left to take, those before it make room if they can: as many machines as can work do, which
    makes equal units in rounds optimal. Likewise they change their choices for a longer configuration that nobody took.

    With replicas, a machine that holds several partitions takes first the one that would take longest if the fastest machine that
    holds it died, unless the longest configuration has as much left to do as the machine itself.

    A machine that has nothing more to do may take a unit that another one was to train, if it holds the partition, too, and
    ends it before the other one would have come to its last.

    Args:
        problem: What is left to do.
        hosting: Which machine is to train each unit.
        weights: By configuration: how much longer its remaining time shall count than it is; empty: as it is.
    """

    def __init__(self, problem: VisitProblem, hosting: Hosting, weights: Sequence[float] = ()) -> None:
        self._problem = problem
        self._weights = weights
        self._remaining = list(problem.config_after) or [0.0] * len(problem.costs)
        self._load = [problem.free_machine(machine) for machine in range(len(problem.speeds))]
        self._todo: list[dict[int, list[int]]] = [{} for _ in problem.speeds]
        self._idle: list[tuple[float, int]] = []  # Idle configurations, longest remaining time first,
        self._keys: dict[int, tuple[float, int]] = {}  # and where each stands there.
        self._fresh: list[tuple[float, int]] = []  # Those that became idle since machines chose last,
        self._poor: set[int] = set()  # and machines that found nothing then.
        self._steals = problem.replicated
        costs, sizes, speeds = problem.costs, problem.sizes, problem.speeds
        for (config, partition), machine in zip(problem.units, hosting, strict=True):
            seconds = costs[config] * sizes[partition] / speeds[machine]
            self._remaining[config] += seconds
            self._load[machine] += seconds
            self._todo[machine].setdefault(config, []).append(partition)
        # By partition: the work that is left, and how fast those that hold it are together without the fastest of them.
        self._left = [0.0] * len(sizes)
        self._others = [
            math.fsum(speeds[m] for m in held) - max((speeds[m] for m in held), default=0.0) for held in problem.holders
        ]
        self._held: list[set[int]] = [set() for _ in speeds]  # The partitions that each machine is to train on.
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
        """Lets a machine choose of the idle configurations; one that found none last time, of those that became idle since."""
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
        """The longest candidate for the partition that is most at risk, of those that any needs; None: none needs any."""
        todo, keys = self._todo[machine], self._keys
        for partition in self._by_risk(self._held[machine]):
            for key in candidates:
                if key[1] in keys and partition in todo.get(key[1], ()):
                    return key
        return None

    def _by_risk(self, partitions: Iterable[int]) -> list[int]:
        """Partitions, first those that would take longest if the fastest that holds them died; alike, the largest first."""
        left, others, sizes = self._left, self._others, self._problem.sizes
        return sorted(partitions, key=lambda q: (-left[q] / others[q] if others[q] else 0.0, -sizes[q], q))

    def _exchange(self, chosen: dict[int, int]) -> None:
        """Lets machines change their choices so that a longer configuration is among them, and a shorter one not."""
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
        """Finds a machine for a configuration at the cost of a shorter one than `key`, and answers which; None: there is none."""
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
        """Finds a configuration for a machine by changing the choices of others: an augmenting path."""
        todo = self._todo[machine]
        for config, other in list(chosen.items()):
            if config in todo and config not in tried:
                tried.add(config)
                if self._choose(other, chosen) or self._make_room(other, chosen, tried):
                    chosen[config] = machine
                    return True
        return False

    def _take(self, machine: int, host: int, config: int) -> TrainingUnit:
        """Takes a unit of a configuration out of what a host has to do, for a machine to train it."""
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
        """Takes over a unit of the machine with the largest load of those that this one can help; a list of one, or empty."""
        problem = self._problem
        # What it could not take over before it cannot now, either: loads only become less.
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
    """Algorithm 1 of Cerebro, with its replicas (section 5.5): each idle machine starts a random unit that it can.

    Args:
        problem: What is left to do.
        rng: The source of chance.
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
    """Follows a plan: machines start the units planned for them in their order, and wait for a configuration that runs elsewhere.

    Args:
        problem: What is left to do.
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
