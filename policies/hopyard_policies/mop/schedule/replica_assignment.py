"""Assigns units to slots when partitions have replicas, so that an open-shop problem remains."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from hopyard_policies.mop.schedule.problem import VisitProblem

POWERS = (8, 24, 72)
"""Powers of the finish times in the objective, in order of use; with the last one, the latest finish time dominates the sum."""

SWEEPS = 6
"""Maximum number of passes over all units for each power."""


def host(problem: VisitProblem) -> list[int]:
    """Choose the slot of each unit so that slots and configurations can finish as early as possible.

    The finish time of a slot or configuration is the time at which it would finish without waiting. Units are assigned
    one by one, longest first, each to the slot for which the later finish time of slot and configuration is least. Then
    single units are moved to other slots while that reduces the sum of all finish times raised to a power (`POWERS`). If
    assigning each partition to a single slot finishes no later, that assignment is used instead.

    Returns:
        The slot of each of `problem.units`.
    """
    units, holders = problem.units, problem.holders
    if not problem.replicated or not units:
        return [holders[partition][0] for _, partition in units]
    costs, sizes, speeds = problem.costs, problem.sizes, problem.speeds
    paces = [[(slot, sizes[partition] / speeds[slot]) for slot in held] for partition, held in enumerate(holders)]
    fastest = [min((pace for _, pace in choices), default=0.0) for choices in paces]
    load = [problem.free_slot(slot) for slot in range(len(speeds))]
    after = problem.config_after or [0.0] * len(costs)
    spans = [problem.free_config(config) + after[config] for config in range(len(costs))]
    for config, partition in units:
        spans[config] += costs[config] * fastest[partition]
    hosting = [0] * len(units)
    for number in sorted(range(len(units)), key=lambda n: (-costs[units[n][0]] * sizes[units[n][1]], n)):
        config, partition = units[number]
        cost, span = costs[config], spans[config] - costs[config] * fastest[partition]
        slot, pace = min(paces[partition], key=lambda way: max(load[way[0]], span) + cost * way[1])
        hosting[number] = slot
        load[slot] += cost * pace
        spans[config] = span + cost * pace
    movable = [number for number, unit in enumerate(units) if len(holders[unit.partition]) > 1]
    whole = _whole(problem)
    if max(map(max, loads(problem, whole))) <= max(load + spans):
        return whole
    for power in POWERS:
        latest = max(load + spans)
        for _ in range(SWEEPS):
            moved = False
            for number in movable:
                config, partition = units[number]
                source, cost, span = hosting[number], costs[config], spans[config]
                now = cost * sizes[partition] / speeds[source]
                gained = (load[source] / latest) ** power - ((load[source] - now) / latest) ** power
                span_before = (span / latest) ** power
                for slot, pace in paces[partition]:
                    if slot == source:
                        continue
                    then = cost * pace
                    lost = ((load[slot] + then) / latest) ** power - (load[slot] / latest) ** power
                    lost += ((span - now + then) / latest) ** power - span_before
                    if lost < gained - 1e-12:
                        load[source] -= now
                        load[slot] += then
                        spans[config] = span - now + then
                        hosting[number] = slot
                        moved = True
                        break
            if not moved:
                break
    _shift(problem, hosting, load, spans)
    return hosting


def _shift(problem: VisitProblem, hosting: list[int], load: list[float], spans: list[float]) -> None:
    """Relieve the most loaded slot by moves along a chain: it gives a unit to a second slot, which gives one to a third, and so on.

    This is repeated while it reduces the largest load and some slot finishes later than all configurations.

    Args:
        problem: The problem.
        hosting: The slot of each unit; updated.
        load: The finish time of each slot; updated.
        spans: The finish time of each configuration; updated.
    """
    held: list[list[set[int]]] = [[set() for _ in problem.sizes] for _ in problem.speeds]
    for number, (_, partition) in enumerate(problem.units):
        held[hosting[number]][partition].add(number)
    for _ in problem.units:
        source = max(range(len(load)), key=load.__getitem__)
        if load[source] <= max(spans):
            return  # A configuration has more work than any slot.
        # By slot: the previous slot on the chain and the partition whose unit moves from there.
        came: dict[int, tuple[int, int]] = {source: (source, 0)}
        queue = deque([source])
        while queue:
            slot = queue.popleft()
            for partition, numbers in enumerate(held[slot]):
                for other in problem.holders[partition] if numbers else ():
                    if other not in came:
                        came[other] = (slot, partition)
                        queue.append(other)
        target = min(came, key=load.__getitem__)
        after = list(load)
        moves = []
        while target != source:
            slot, partition = came[target]
            number = min(held[slot][partition], key=lambda n: (spans[problem.units[n].config], n))
            config = problem.units[number].config
            after[slot] -= problem.time(config, partition, slot)
            after[target] += problem.time(config, partition, target)
            moves.append((number, slot, target))
            target = slot
        less, same = load[source] * (1 - 1e-9), 1 + 1e-9
        if not moves or any(after[other] > max(less, load[other] * same) for _, _, other in moves):
            return
        for number, slot, other in moves:
            config, partition = problem.units[number]
            held[slot][partition].remove(number)
            held[other][partition].add(number)
            hosting[number] = other
            spans[config] += problem.time(config, partition, other) - problem.time(config, partition, slot)
        load[:] = after


def _whole(problem: VisitProblem) -> list[int]:
    """Assign each partition to one slot for all configurations, which is easier to schedule.

    Partitions with the fewest holders come first, of these the one with the most work. Each is assigned to the holder that would
    finish it earliest.

    Returns:
        The slot of each of `problem.units`.
    """
    work = [0.0] * len(problem.sizes)
    for config, partition in problem.units:
        work[partition] += problem.costs[config] * problem.sizes[partition]
    load = [problem.free_slot(slot) for slot in range(len(problem.speeds))]
    chosen = [0] * len(work)
    for partition in sorted(range(len(work)), key=lambda q: (len(problem.holders[q]), -work[q], q)):
        held = problem.holders[partition]
        if held:
            chosen[partition] = min(held, key=lambda m: load[m] + work[partition] / problem.speeds[m])
            load[chosen[partition]] += work[partition] / problem.speeds[chosen[partition]]
    return [chosen[partition] for _, partition in problem.units]


def loads(problem: VisitProblem, hosting: Sequence[int]) -> tuple[list[float], list[float]]:
    """Return the earliest times at which each configuration and each slot could finish if none had to wait.

    Their maximum is a lower bound of the time at which any schedule with this assignment of units to slots finishes.

    Args:
        problem: The problem.
        hosting: The slot that trains each of `problem.units`.

    Returns:
        The times of the configurations, including their training after this epoch, and the times of the slots; in seconds
        from now.
    """
    after = problem.config_after or [0.0] * len(problem.costs)
    configs = [problem.free_config(config) + after[config] for config in range(len(problem.costs))]
    slots = [problem.free_slot(slot) for slot in range(len(problem.speeds))]
    for (config, partition), slot in zip(problem.units, hosting, strict=True):
        seconds = problem.time(config, partition, slot)
        configs[config] += seconds
        slots[slot] += seconds
    return configs, slots
