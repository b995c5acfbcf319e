"""Simulates a rule in virtual time and returns the schedule of training units that results.

A rule (`dispatch.Rule`) decides which training unit each idle slot starts.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping

from hopyard_policies.mop.schedule.dispatch import Rule
from hopyard_policies.mop.schedule.problem import ScheduledUnit, TrainingUnit, VisitProblem, VisitSchedule
from hopyard_policies.mop.schedule.replanning import Online

Actual = Callable[[TrainingUnit, int], float]
"""Takes a unit and a slot. Returns the actual training time of the unit on the slot."""


def carry_out(problem: VisitProblem, rule: Rule) -> VisitSchedule:
    """Simulate a rule in virtual time; each unit takes its time in the problem.

    When several units end at the same time, the rule decides after all of them have been reported.

    Args:
        problem: The problem of the rule.
        rule: The rule; it cannot be used again.

    Returns:
        The schedule; incomplete if the rule did not start all units.
    """
    costs, sizes, speeds = problem.costs, problem.sizes, problem.speeds
    events = _beginning(problem)
    idle: set[int] = set()
    placed: list[ScheduledUnit] = []
    while events:
        now = events[0][0]
        while events and events[0][0] <= now:
            _, config, slot = heapq.heappop(events)
            if config >= 0:
                rule.free(config)
            if slot >= 0:
                idle.add(slot)
        for slot, unit in rule.start(sorted(idle)) if idle else ():
            idle.discard(slot)
            end = now + costs[unit.config] * sizes[unit.partition] / speeds[slot]
            placed.append(ScheduledUnit(unit, slot, now, end))
            heapq.heappush(events, (end, unit.config, slot))
    return VisitSchedule(tuple(placed), complete=len(placed) == len(problem.units))


def carry_out_online(
    problem: VisitProblem, rule: Online, actual: Actual, deaths: Mapping[int, float] | None = None
) -> VisitSchedule:
    """Simulate a rule that does not know the actual times or which slots fail.

    Args:
        problem: The scheduling problem.
        rule: The rule; it cannot be used again.
        actual: Returns the actual seconds of a unit on a slot.
        deaths: Failing slots with the time of failure, in seconds from the start of the simulation (> 0); None: no slot fails.
            The unit that is running on a slot when it fails is lost and not in the schedule.

    Returns:
        The units that finished; incomplete if no slot holds the partitions of the rest.
    """
    events = _beginning(problem)
    gone = dict(deaths or {})
    for moment in gone.values():
        heapq.heappush(events, (moment, -1, -1))
    idle: set[int] = set()
    running: dict[int, ScheduledUnit] = {}
    placed: list[ScheduledUnit] = []
    while events:
        now = events[0][0]
        for slot in [slot for slot, moment in gone.items() if moment <= now]:
            del gone[slot]
            idle.discard(slot)
            lost = running.pop(slot, None)
            if lost is None or lost.end > now:
                rule.died(slot)
            else:  # The unit ended at exactly the time of the failure.
                placed.append(lost)
                rule.ended(slot, lost.end - lost.start)
                rule.died(slot)
            if lost is not None:
                rule.free(lost.unit.config)
        while events and events[0][0] <= now:
            end, config, slot = heapq.heappop(events)
            if config >= 0 and slot >= 0:
                done = running.get(slot)
                if done is None or (done.unit.config, done.end) != (config, end):
                    continue  # The unit was lost when its slot failed.
                placed.append(running.pop(slot))
                rule.ended(slot, end - done.start)
            if config >= 0:
                rule.free(config)
            if slot >= 0:
                idle.add(slot)
        for slot, unit in rule.start(sorted(idle), now) if idle else ():
            idle.discard(slot)
            running[slot] = ScheduledUnit(unit, slot, now, now + actual(unit, slot))
            heapq.heappush(events, (running[slot].end, unit.config, slot))
    return VisitSchedule(tuple(placed), complete=len(placed) == len(problem.units))


def _beginning(problem: VisitProblem) -> list[tuple[float, int, int]]:
    """Return the initial events of a simulation as a heap: seconds, configuration and slot that become idle then (-1: none)."""
    events = [(problem.free_config(config), config, -1) for config in range(len(problem.costs))]
    events += [(problem.free_slot(slot), -1, slot) for slot in range(len(problem.speeds))]
    heapq.heapify(events)
    return events
