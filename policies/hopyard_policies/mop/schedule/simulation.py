"""Simulates a rule in virtual time and returns the schedule."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping

from hopyard_policies.mop.schedule.dispatch import Rule
from hopyard_policies.mop.schedule.problem import Placed, TrainingUnit, VisitProblem, VisitSchedule
from hopyard_policies.mop.schedule.replanning import Online

Actual = Callable[[TrainingUnit, int], float]
"""Returns the actual time of a unit on a machine."""


def carry_out(problem: VisitProblem, rule: Rule) -> VisitSchedule:
    """Simulate a rule, with each unit taking its time in the problem.

    The rule decides after all units that end at the same time have been reported.

    Args:
        problem: The problem of the rule.
        rule: The rule; it is used up.

    Returns:
        The schedule; incomplete if the rule had nothing left to start.
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
    """Simulate a rule that does not know the actual times or which machines fail.

    Args:
        problem: The scheduling problem.
        rule: The rule; it is used up.
        actual: Returns the actual time of a unit on a machine.
        deaths: Failing machines with the time of failure (> 0). The unit they train then is lost and not in the
            schedule.

    Returns:
        The units that finished; incomplete if no machine holds the rest.
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
            else:  # It ended at exactly this time.
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
    """Return initial events: time, configuration and machine that become free; -1: none."""
    events = [(problem.free_config(config), config, -1) for config in range(len(problem.costs))]
    events += [(problem.free_machine(machine), -1, machine) for machine in range(len(problem.speeds))]
    heapq.heapify(events)
    return events
