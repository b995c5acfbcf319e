"""Which machine trains which unit where partitions have replicas: chosen first, so that only an open shop is left to schedule."""

from __future__ import annotations

from collections.abc import Sequence

from hopyard_policies.mop.problem import Problem

POWERS = (8, 24, 72)
"""What ends are raised to, one after the other, so that in the end hardly more than the latest one counts."""

SWEEPS = 6
"""How often all units are looked at, at most, with each power."""


def host(problem: Problem) -> list[int]:
    """Chooses the machine of each unit so that machines and configurations are done as early as they can be.

    Each machine and each configuration has an end: when it would be done if it never waited. Units are placed one by one,
    longest first, where the later one of the two ends concerned is the earliest; then they move, one at a time, as long as that
    lessens the sum of all ends raised to a power.

    Returns:
        For each of `problem.units` its machine.
    """
    units, holders = problem.units, problem.holders
    if not problem.replicated:
        return [holders[partition][0] for _, partition in units]
    costs, sizes, speeds = problem.costs, problem.sizes, problem.speeds
    paces = [
        [(machine, sizes[partition] / speeds[machine]) for machine in held] for partition, held in enumerate(holders)
    ]
    fastest = [min((pace for _, pace in choices), default=0.0) for choices in paces]
    load = [problem.free_machine(machine) for machine in range(len(speeds))]
    spans = [problem.free_config(config) for config in range(len(costs))]
    for config, partition in units:
        spans[config] += costs[config] * fastest[partition]
    hosting = [0] * len(units)
    for number in sorted(range(len(units)), key=lambda n: (-costs[units[n][0]] * sizes[units[n][1]], n)):
        config, partition = units[number]
        cost, span = costs[config], spans[config] - costs[config] * fastest[partition]
        machine, pace = min(paces[partition], key=lambda way: max(load[way[0]], span) + cost * way[1])
        hosting[number] = machine
        load[machine] += cost * pace
        spans[config] = span + cost * pace
    movable = [number for number, unit in enumerate(units) if len(holders[unit.partition]) > 1]
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
                for machine, pace in paces[partition]:
                    if machine == source:
                        continue
                    then = cost * pace
                    lost = ((load[machine] + then) / latest) ** power - (load[machine] / latest) ** power
                    lost += ((span - now + then) / latest) ** power - span_before
                    if lost < gained - 1e-12:
                        load[source] -= now
                        load[machine] += then
                        spans[config] = span - now + then
                        hosting[number] = machine
                        moved = True
                        break
            if not moved:
                break
    return hosting


def loads(problem: Problem, hosting: Sequence[int]) -> tuple[list[float], list[float]]:
    """When configurations and machines would be done at the earliest, with nothing to wait for: what a hosting cannot beat."""
    after = problem.config_after or [0.0] * len(problem.costs)
    configs = [problem.free_config(config) + after[config] for config in range(len(problem.costs))]
    machines = [problem.free_machine(machine) for machine in range(len(problem.speeds))]
    for (config, partition), machine in zip(problem.units, hosting, strict=True):
        seconds = problem.time(config, partition, machine)
        configs[config] += seconds
        machines[machine] += seconds
    return configs, machines
