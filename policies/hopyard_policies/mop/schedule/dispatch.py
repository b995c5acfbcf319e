"""Rules that choose the next unit of idle slots: Hopyard's rule, Cerebro's randomized rule, and following a plan.

Configurations, partitions and slots are indices into the lists of a `VisitProblem`. A configuration is idle if none of its units is
running.
"""

from __future__ import annotations

import math
import random
from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from hopyard_policies.mop.schedule.problem import Hosting, TrainingUnit, VisitProblem, VisitSchedule

EXCHANGED: Final = 4
"""Number of unassigned configurations, in order of most remaining time, that may displace chosen ones with less remaining time."""


class Rule(Protocol):
    """Decides which unit each idle slot starts. A rule is created for one problem and keeps track of its remaining units."""

    def free(self, config: int) -> None:
        """Mark a configuration as idle, so that it may start a unit. Initially none is idle.

        Args:
            config: The index of the configuration.
        """

    def start(self, slots: Sequence[int]) -> list[tuple[int, TrainingUnit]]:
        """Decide which idle slots start a unit now.

        Args:
            slots: All idle slots, ascending.

        Returns:
            Pairs of slot and unit. The rule removes these units from its remaining ones, and their configurations from its idle ones.
        """


class LongestFirst:
    """Idle slots choose in order of largest remaining load; each takes the longest idle configuration that needs it.

    The longest configuration is the one with the most remaining time, so the critical slot and the critical
    configuration come first. The load of a slot is the time until it has trained all units assigned to it. If several slots are
    idle and one finds no configuration, slots that chose before it change their choices to make room if possible. As many slots as
    possible therefore work; if all units take equally long and start together, the schedule is optimal. Slots also exchange
    choices for a longer configuration that is unassigned.

    With replicas, a slot that holds several partitions prefers the partition that would take longest if its fastest
    holder failed, unless the longest configuration has at least as much remaining time as the slot has remaining load. A slot
    without remaining units may take a unit of another slot if it holds the partition and finishes the unit before the other
    slot would finish its load.

    Args:
        problem: The remaining problem.
        hosting: The slot assigned to each unit, in the order of `problem.units`.
        weights: A factor for the remaining time of each configuration; empty: 1.
    """

    def __init__(self, problem: VisitProblem, hosting: Hosting, weights: Sequence[float] = ()) -> None:
        self._problem = problem
        self._weights = weights
        self._remaining = list(problem.config_after) or [0.0] * len(problem.costs)
        self._load = [problem.free_slot(slot) for slot in range(len(problem.speeds))]
        self._todo: list[dict[int, list[int]]] = [{} for _ in problem.speeds]
        self._idle: list[tuple[float, int]] = []  # Idle configurations, longest remaining time first,
        self._keys: dict[int, tuple[float, int]] = {}  # and their keys in that list.
        self._fresh: list[tuple[float, int]] = []  # Configurations that became idle since the last call of `start`,
        self._poor: set[int] = set()  # and slots that found no unit in that call.
        self._steals = problem.replicated
        costs, sizes, speeds = problem.costs, problem.sizes, problem.speeds
        for (config, partition), slot in zip(problem.units, hosting, strict=True):
            seconds = costs[config] * sizes[partition] / speeds[slot]
            self._remaining[config] += seconds
            self._load[slot] += seconds
            self._todo[slot].setdefault(config, []).append(partition)
        # By partition: the remaining work, and the joint speed of its holders without the fastest one.
        self._left = [0.0] * len(sizes)
        self._others = [
            math.fsum(speeds[m] for m in held) - max((speeds[m] for m in held), default=0.0) for held in problem.holders
        ]
        self._held: list[set[int]] = [set() for _ in speeds]  # The partitions that each slot should train on.
        if self._steals:
            for (config, partition), slot in zip(problem.units, hosting, strict=True):
                self._left[partition] += costs[config] * sizes[partition]
                self._held[slot].add(partition)

    def free(self, config: int) -> None:
        """Mark a configuration as idle; see `Rule.free`."""
        key = (-self._remaining[config] * self._weight(config), config)
        insort(self._idle, key)
        self._keys[config] = key
        self._fresh.append(key)

    def start(self, slots: Sequence[int]) -> list[tuple[int, TrainingUnit]]:
        """Decide which idle slots start a unit now; see `Rule.start`."""
        load = self._load
        self._fresh.sort()
        if len(slots) > 1:
            slots = sorted(slots, key=load.__getitem__, reverse=True)
        chosen: dict[int, int] = {}
        for slot in slots:
            if self._todo[slot] and not self._choose(slot, chosen):
                self._make_room(slot, chosen, set())
        if len(chosen) > 1 and self._idle:
            self._exchange(chosen)
        started = [(slot, self._take(slot, slot, config)) for config, slot in chosen.items()]
        if self._steals and self._idle:
            working = set(chosen.values())
            started += [taken for slot in slots if slot not in working for taken in self._steal(slot)]
        self._poor = set(slots).difference(slot for slot, _ in started)
        self._fresh.clear()
        return started

    def _weight(self, config: int) -> float:
        return self._weights[config] if self._weights else 1.0

    def _choose(self, slot: int, chosen: dict[int, int]) -> bool:
        """Choose an idle configuration for a slot: the one with the most remaining time among those that need the slot.

        If units of several partitions are assigned to the slot and that configuration has less remaining time than the slot has
        load, the choice of `_riskiest` is used instead, if there is one. A slot that found no unit in the last call of `start`
        chooses only among configurations that became idle since.

        Args:
            slot: The slot.
            chosen: The slot of each configuration chosen so far; updated.

        Returns:
            True if a configuration was chosen.
        """
        todo, keys = self._todo[slot], self._keys
        candidates = self._fresh if slot in self._poor else self._idle
        if len(todo) * 4 < len(candidates):
            key = min((keys[config] for config in todo if config in keys), default=None)
        else:
            key = next((key for key in candidates if key[1] in todo and key[1] in keys), None)
        if key is None:
            return False
        if len(self._held[slot]) > 1 and -key[0] < self._load[slot]:
            key = self._riskiest(slot, candidates) or key
        self._pick(key)
        chosen[key[1]] = slot
        return True

    def _riskiest(self, slot: int, candidates: Sequence[tuple[float, int]]) -> tuple[float, int] | None:
        """Return a candidate to train on the riskiest of the slot's partitions that any candidate needs.

        The riskiest partition is the one whose work would take longest if its fastest holder failed (`_by_risk`). Of the candidates
        that need it, the first is returned.

        Args:
            slot: The slot.
            candidates: Keys of configurations, longest remaining time first. A key is (the negative remaining time, the index of the
                configuration).

        Returns:
            The key of the configuration; None: no candidate needs the slot.
        """
        todo, keys = self._todo[slot], self._keys
        for partition in self._by_risk(self._held[slot]):
            for key in candidates:
                if key[1] in keys and partition in todo.get(key[1], ()):
                    return key
        return None

    def _by_risk(self, partitions: Iterable[int]) -> list[int]:
        """Sort partitions by the time that their work would take without their fastest holder, longest first.

        Of partitions with equal times, the one with the largest size in the problem comes first.
        """
        left, others, sizes = self._left, self._others, self._problem.sizes
        return sorted(partitions, key=lambda q: (-left[q] / others[q] if others[q] else 0.0, -sizes[q], q))

    def _exchange(self, chosen: dict[int, int]) -> None:
        """Exchange choices so that an idle configuration with more remaining time is assigned instead of one with less.

        Args:
            chosen: The slot of each chosen configuration; updated.
        """
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
        """Assign a slot to a configuration by removing a chosen configuration with less remaining time (an augmenting path).

        Args:
            config: The configuration that needs a slot.
            key: Its key: the negative remaining time. A configuration with a larger key may be removed.
            chosen: The slot of each chosen configuration; updated.
            taken: For each chosen configuration, the pair of its negative remaining time and its index.
            tried: Configurations that this search has already tried to move; updated.

        Returns:
            The removed configuration; None if no configuration can be removed.
        """
        for other, slot in list(chosen.items()):
            if config in self._todo[slot] and other not in tried:
                tried.add(other)
                if taken[other][0] > key:
                    del chosen[other]
                    chosen[config] = slot
                    return other
                dropped = self._displace(other, key, chosen, taken, tried)
                if dropped is not None:
                    chosen[config] = slot
                    return dropped
        return None

    def _pick(self, key: tuple[float, int]) -> None:
        self._idle.remove(key)
        del self._keys[key[1]]

    def _make_room(self, slot: int, chosen: dict[int, int], tried: set[int]) -> bool:
        """Assign to a slot without a choice a configuration that another slot chose; the other slot chooses again (augmenting path).

        Args:
            slot: The slot.
            chosen: The slot of each chosen configuration; updated.
            tried: Configurations that this search has already tried to move; updated.

        Returns:
            True if the slot received a configuration.
        """
        todo = self._todo[slot]
        for config, other in list(chosen.items()):
            if config in todo and config not in tried:
                tried.add(config)
                if self._choose(other, chosen) or self._make_room(other, chosen, tried):
                    chosen[config] = slot
                    return True
        return False

    def _take(self, slot: int, host: int, config: int) -> TrainingUnit:
        """Remove a unit of a configuration from the units assigned to the slot `host`, so that `slot` trains it; return the unit.

        Args:
            slot: The slot that trains the unit.
            host: The slot to which the unit was assigned.
            config: The configuration.
        """
        partitions = self._todo[host][config]
        problem = self._problem
        held = partitions if slot == host else [q for q in partitions if slot in problem.holders[q]]
        partition = held[0] if len(held) == 1 else self._by_risk(held)[0]
        self._left[partition] -= problem.costs[config] * problem.sizes[partition]
        partitions.remove(partition)
        if not partitions:
            del self._todo[host][config]
        seconds = problem.time(config, partition, host)
        self._load[host] -= seconds
        self._remaining[config] -= seconds
        return TrainingUnit(config, partition)

    def _steal(self, slot: int) -> list[tuple[int, TrainingUnit]]:
        """Take over a unit for the idle slot `slot` from another slot.

        The unit belongs to an idle configuration, `slot` holds its partition, and `slot` would finish it before the other slot would
        finish its load. The other slot is the one with the most remaining load that has such a unit.

        Returns:
            The idle slot and the unit, as the only item of a list; empty if there is no such unit.
        """
        problem = self._problem
        # Loads only decrease, so a unit that this slot could not take over before cannot be taken over now.
        candidates = self._fresh if slot in self._poor else self._idle
        candidates = [key for key in candidates if key[1] in self._keys]
        for host in sorted(range(len(self._todo)) if candidates else (), key=lambda other: (-self._load[other], other)):
            todo = self._todo[host]
            if host == slot or not todo:
                continue
            for key in candidates:
                held = [q for q in todo.get(key[1], ()) if slot in problem.holders[q]]
                if held and min(problem.time(key[1], q, slot) for q in held) < self._load[host]:
                    self._pick(key)
                    return [(slot, self._take(slot, host, key[1]))]
        return []


class Randomized:
    """Algorithm 1 of Cerebro with replicas (section 5.5): each idle slot starts a random unit that it can train.

    Args:
        problem: The remaining problem.
        rng: The source of random numbers.
    """

    def __init__(self, problem: VisitProblem, rng: random.Random) -> None:
        self._rng = rng
        self._idle: set[int] = set()
        self._holders = problem.holders
        self._held: list[list[int]] = [[] for _ in problem.speeds]
        for partition, slots in enumerate(problem.holders):
            for slot in slots:
                self._held[slot].append(partition)
        self._left: list[set[int]] = [set() for _ in problem.sizes]
        for config, partition in problem.units:
            self._left[partition].add(config)

    def free(self, config: int) -> None:
        """Mark a configuration as idle; see `Rule.free`."""
        self._idle.add(config)

    def start(self, slots: Sequence[int]) -> list[tuple[int, TrainingUnit]]:
        """Decide which idle slots start a unit now; see `Rule.start`."""
        started = []
        for slot in slots:
            units = [(c, q) for q in self._held[slot] for c in sorted(self._left[q] & self._idle)]
            if units:
                unit = TrainingUnit(*self._rng.choice(units))
                self._left[unit.partition].remove(unit.config)
                self._idle.remove(unit.config)
                started.append((slot, unit))
        return started


class PlanFollower:
    """Follows a plan: slots start their planned units in order, and wait while the configuration trains on another slot.

    Args:
        problem: The remaining problem.
        plan: A schedule that contains all remaining units of the problem.
    """

    def __init__(self, problem: VisitProblem, plan: VisitSchedule) -> None:
        left = set(problem.units)
        self._todo: list[deque[TrainingUnit]] = [deque() for _ in problem.speeds]
        self._idle: set[int] = set()
        for placed in sorted(plan.placed, key=lambda placed: placed.start):
            if placed.unit in left:
                self._todo[placed.slot].append(placed.unit)

    def free(self, config: int) -> None:
        """Mark a configuration as idle; see `Rule.free`."""
        self._idle.add(config)

    def start(self, slots: Sequence[int]) -> list[tuple[int, TrainingUnit]]:
        """Decide which idle slots start a unit now; see `Rule.start`."""
        started = []
        for slot in slots:
            todo = self._todo[slot]
            if todo and todo[0].config in self._idle:
                self._idle.remove(todo[0].config)
                started.append((slot, todo.popleft()))
        return started
