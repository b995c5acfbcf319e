"""Lower bounds of the makespan of a schedule, the time from now to the end of its last unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hopyard_policies.mop.schedule.problem import VisitProblem
from hopyard_policies.mop.schedule.replica_assignment import host, loads


def lower_bound(problem: VisitProblem) -> float:
    """Return a lower bound of the makespan in seconds.

    Without replicas, it is the larger of two times: the longest remaining time of a configuration, and the longest time for the
    units that one slot must train. With replicas it is the least time in which all could finish if units were divisible among
    the holders of their partitions (`replica_bound`). Training after this epoch is ignored. Without units the result is 0.
    """
    if problem.replicated:
        return replica_bound(problem)
    configs, slots = loads(replace(problem, config_after=()), host(problem))
    ends = [configs[config] for config, _ in problem.units]
    ends += [slots[problem.holders[partition][0]] for _, partition in problem.units]
    return max(ends, default=0.0)


def replica_bound(problem: VisitProblem, until: Mapping[int, float] | None = None) -> float:
    """Return the bound for replicated partitions, where units may be split over all their holders (a linear program, HiGHS).

    The bound is the least C such that all slots and configurations could finish within C seconds if units were divisible.
    Later epochs of configurations are ignored. Configurations with equal cost and equal remaining partitions are
    merged; this does not change the result, because an optimum can be averaged over them.

    Args:
        problem: The scheduling problem.
        until: Slots that fail, with the time of the failure in seconds from now; None: no slot fails. The result is then the
            bound of a scheduler that knows these times in advance.

    Raises:
        RuntimeError: The solver failed, or a failing slot cannot finish in time the units that only it can train.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    gone = until or {}
    left: list[set[int]] = [set() for _ in problem.costs]
    for config, partition in problem.units:
        left[config].add(partition)
    classes: dict[tuple[float, float, frozenset[int]], int] = {}
    for config, cost in enumerate(problem.costs):
        if left[config]:
            kind = (cost, problem.free_config(config), frozenset(left[config]))
            classes[kind] = classes.get(kind, 0) + 1
    if not classes:
        return 0.0
    # Variables: the fraction of a class's unit trained on a slot, for one configuration; the last one is C.
    times, equal, slot_rows, config_rows = [], [], [], []
    kinds = list(classes)
    rows = 0
    for number, (cost, _, partitions) in enumerate(kinds):
        for partition in sorted(partitions):
            for slot in problem.holders[partition]:
                times.append(cost * problem.sizes[partition] / problem.speeds[slot])
                equal.append(rows)
                slot_rows.append(slot)
                config_rows.append(number)
            rows += 1
    count, slots = len(times), len(problem.speeds)
    seconds = np.array(times)
    many = np.array([classes[kinds[number]] for number in config_rows], dtype=float)
    row = np.concatenate([slot_rows, slots + np.array(config_rows), np.arange(slots + len(kinds))])
    column = np.concatenate([np.arange(count), np.arange(count), np.full(slots + len(kinds), count)])
    value = np.concatenate([seconds * many, seconds, np.full(slots + len(kinds), -1.0)])
    # The initial busy time of a slot is part of the bound only if some partition is on this slot alone.
    needed = {problem.holders[partition][0] for _, partition in problem.units if len(problem.holders[partition]) == 1}
    busy = [problem.free_slot(slot) if slot in needed else 0.0 for slot in range(slots)]
    limits = np.array([-free for free in busy] + [-free for _, free, _ in kinds])
    for slot, moment in gone.items():
        value[2 * count + slot] = 0.0
        limits[slot] = max(moment - busy[slot], 0.0)
    result = linprog(
        np.append(np.zeros(count), 1.0),
        A_ub=coo_array((value, (row, column)), shape=(slots + len(kinds), count + 1)),
        b_ub=limits,
        A_eq=coo_array((np.ones(count), (equal, np.arange(count))), shape=(rows, count + 1)),
        b_eq=np.ones(rows),
        method="highs",
    )
    if result.status != 0:
        raise RuntimeError(f"the bound could not be computed: {result.message}")
    return float(result.fun)
