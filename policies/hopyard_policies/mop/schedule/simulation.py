"""Carries a rule out in virtual time: the schedule that comes of it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping

from hopyard_policies.mop.schedule.dispatch import Rule
from hopyard_policies.mop.schedule.problem import Placed, TrainingUnit, VisitProblem, VisitSchedule
from hopyard_policies.mop.schedule.replanning import Online

Actual = Callable[[TrainingUnit, int], float]
"""How long a unit really takes on a machine."""


def carry_out(problem: VisitProblem, rule: Rule) -> VisitSchedule:
    """Runs a problem as a rule says, each unit taking as long as the problem says.

    Units that end at the same moment are all told to the rule before it decides.

    Args:
        problem: What is to be done; the rule's own.
        rule: Decides what starts. It is used up.

    Returns:
        What ran. It is not complete if the rule had nothing to start any more.
    """
    costs, sizes, speeds = problem.costs, problem.sizes, problem.speeds
    events = _beginning(problem)
    idle: set[int] = set()
    placed: list[Placed] = []
    while events:
        now = events[0][0]
        while events and events[0][0] <= now:
            _, config, machine = heapq.heappop(events)
            if config >= 0:
                rule.free(config)
            if machine >= 0:
                idle.add(machine)
        for machine, unit in rule.start(sorted(idle)) if idle else ():
            idle.discard(machine)
            end = now + costs[unit.config] * sizes[unit.partition] / speeds[machine]
            placed.append(Placed(unit, machine, now, end))
            heapq.heappush(events, (end, unit.config, machine))
    return VisitSchedule(tuple(placed), complete=len(placed) == len(problem.units))


def carry_out_online(
    problem: VisitProblem, rule: Online, actual: Actual, deaths: Mapping[int, float] | None = None
) -> VisitSchedule:
    """Runs a problem with a rule that does not know what comes: how long units take, and which machines die.

    Args:
        problem: What is to be done.
        rule: Decides what starts. It is used up.
        actual: How long each unit takes on each machine.
        deaths: Machines that die, and when (> 0). What one trains then is lost, and not in the schedule.

    Returns:
        What ran to its end. It is not complete if no machine holds what is left.
    """
    events = _beginning(problem)
    gone = dict(deaths or {})
    for moment in gone.values():
        heapq.heappush(events, (moment, -1, -1))
    idle: set[int] = set()
    running: dict[int, Placed] = {}
    placed: list[Placed] = []
    while events:
        now = events[0][0]
        for machine in [machine for machine, moment in gone.items() if moment <= now]:
            del gone[machine]
            idle.discard(machine)
            lost = running.pop(machine, None)
            if lost is None or lost.end > now:
                rule.died(machine)
            else:  # It ended at this very moment.
                placed.append(lost)
                rule.ended(machine, lost.end - lost.start)
                rule.died(machine)
            if lost is not None:
                rule.free(lost.unit.config)
        while events and events[0][0] <= now:
            end, config, machine = heapq.heappop(events)
            if config >= 0 and machine >= 0:
                done = running.get(machine)
                if done is None or (done.unit.config, done.end) != (config, end):
                    continue  # It was lost with its machine.
                placed.append(running.pop(machine))
                rule.ended(machine, end - done.start)
            if config >= 0:
                rule.free(config)
            if machine >= 0:
                idle.add(machine)
        for machine, unit in rule.start(sorted(idle), now) if idle else ():
            idle.discard(machine)
            running[machine] = Placed(unit, machine, now, now + actual(unit, machine))
            heapq.heappush(events, (running[machine].end, unit.config, machine))
    return VisitSchedule(tuple(placed), complete=len(placed) == len(problem.units))


def _beginning(problem: VisitProblem) -> list[tuple[float, int, int]]:
    """Events: when, and the configuration and the machine that are free then; -1: none."""
    events = [(problem.free_config(config), config, -1) for config in range(len(problem.costs))]
    events += [(problem.free_machine(machine), -1, machine) for machine in range(len(problem.speeds))]
    heapq.heapify(events)
    return events
