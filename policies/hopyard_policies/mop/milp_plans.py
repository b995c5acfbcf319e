"""Requests schedules of training units from an exact solver, with a time limit, and uses them when they arrive.

A *plan* is such a schedule: the slot of each unit that remains in the present epoch, and their order. The solver minimizes the time
of the epoch by a mixed-integer program. The *default scheduler* is the rule `longest`, which decides without a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from hopyard.policy import AnswerReady, Cluster
from hopyard_policies.mop.problem_builder import Round, Step
from hopyard_policies.mop.schedule.dispatch import PlanFollower
from hopyard_policies.mop.schedule.planning import dispatcher
from hopyard_policies.mop.schedule.problem import VisitProblem, VisitSchedule, to_plain
from hopyard_policies.mop.schedule.replica_assignment import host, loads
from hopyard_policies.mop.schedule.simulation import carry_out

KIND: Final = "mop_milp"
"""The name of the solver plugin (`hopyard.solver.Solver`)."""

PART: Final = 0.25
"""Maximum solving time, as a fraction of the minimum time of the epoch: most units would have started before a later plan arrives."""

LEAST: Final = 0.5
"""Minimum solving time in seconds."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request for a plan (a schedule of training units) that the solver has not answered yet.

    The solver's answer refers to jobs, slots and partitions by their indices in the lists of the request.

    Attributes:
        ticket: The id of the request.
        jobs: The ids of the jobs, by index.
        slots: The ids of the slots, by index.
        partitions: The names of the partitions, by index.
        epoch: The number of the epoch for which the plan was requested.
    """

    ticket: str
    jobs: Sequence[str]
    slots: Sequence[str]
    partitions: Sequence[str]
    epoch: int


class MilpPlans:
    """Requests a plan from the exact solver in each epoch, once all costs and speeds are measured, and makes a `Round` follow it.

    A plan is a schedule of training units. A `Round` decides which of the units that remain in the present epochs each idle slot
    starts. Until the plan arrives, it uses the default scheduler (the rule `longest`), also if there is no plan, or if the plan is
    worse than the default scheduler on the units that remain when the plan arrives.

    Args:
        seconds: The time limit for the solver in seconds. The fraction `PART` of the epoch's minimum duration is a further limit.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._asked: _Asked | None = None
        self._tried: object = None
        self._plan: Sequence[Step] = ()
        self._epoch = 0  # The epoch of the plan.
        self._fresh = False
        self._followed: Round | None = None

    def guide(self, ahead: Round, epoch: int, now: float) -> None:
        """Make a `Round` start units as the solver's latest schedule says.

        A schedule for another epoch, without all remaining units, or worse than the default scheduler is discarded instead.
        Call this before the `Round` starts units.

        Args:
            ahead: The object that decides which of the remaining units each idle slot starts.
            epoch: The policy's counter, which increases whenever an epoch of any job begins.
            now: The time in seconds (`Cluster.now`).
        """
        if self._plan and (self._epoch != epoch or not self._follow(now, ahead)):
            self._plan = ()

    def ask(self, cluster: Cluster, ahead: Round, epoch: int) -> None:
        """Request a schedule for the units that remain in the epoch from the solver. Call it after units were started.

        Nothing is requested if a schedule or a pending request exists, if one was already requested in this epoch with these slots,
        or if no training time has been measured yet for some job or some slot.

        Args:
            cluster: The view of the up-call.
            ahead: The `Round`, which has the remaining units.
            epoch: The policy's counter, which increases whenever an epoch of any job begins.
        """
        reason = epoch, tuple(cluster.slots)
        if self._plan or self._asked is not None or self._tried == reason or not ahead.known:
            return
        left = replace(ahead.left(cluster.now), config_after=())
        if not left.units:
            return
        self._tried = reason
        ends = loads(left, host(left))
        seconds = min(self._seconds, max(PART * max(ends[0] + ends[1]), LEAST))
        ticket = cluster.ask(KIND, to_plain(left), seconds=seconds)
        self._asked = _Asked(ticket, ahead.jobs, ahead.slots, ahead.partitions, epoch)

    def heard(self, answer: AnswerReady) -> None:
        """Store the plan (a schedule of units) in the solver's answer to the latest request. Ignore other answers and errors."""
        asked = self._asked
        if asked is None or answer.ticket != asked.ticket:
            return
        self._asked = None
        if not answer.error:
            self._plan, self._epoch, self._fresh = _steps(asked, answer.result), asked.epoch, True

    def _follow(self, now: float, ahead: Round) -> bool:
        """Make a `Round` follow the plan if the plan has all its units and, if new, is not worse than the default scheduler.

        The default scheduler is the rule `longest`.

        Args:
            now: The time in seconds (`Cluster.now`).
            ahead: The `Round`, which has the remaining units.

        Returns:
            True if the `Round` follows the plan now. False: the plan must be discarded.
        """
        if ahead.follows:
            return True
        if ahead is self._followed:  # The round followed the plan until times differed from the planned ones.
            self._tried = self._followed = None
            return False
        fresh, self._fresh = self._fresh, False
        left = ahead.left(now)
        plan = ahead.schedule(self._plan)
        if not covers(plan, left) or (fresh and not _helps(plan, left)):
            return False
        ahead.follow(plan, now)
        self._followed = ahead
        return True


def covers(plan: VisitSchedule, left: VisitProblem) -> bool:
    """Return whether `plan` contains all units that remain in `left`, on slots that hold their partitions."""
    planned = {placed.unit for placed in plan.placed if placed.slot in left.holders[placed.unit.partition]}
    return planned.issuperset(left.units)


def _helps(plan: VisitSchedule, left: VisitProblem) -> bool:
    """Return whether a new plan finishes the remaining units no later than the default scheduler, the rule `longest`, would.

    Units that started while the solver ran are not among the remaining units, although the plan contains them.

    Args:
        plan: The plan.
        left: The problem with the units that remain now.
    """
    return carry_out(left, PlanFollower(left, plan)).makespan <= carry_out(left, dispatcher(left)).makespan * (1 + 1e-9)


def _steps(asked: _Asked, result: Any) -> list[Step]:
    """Return the units of the plan in the solver's answer, in order of start; empty if the answer is invalid.

    Args:
        asked: The request.
        result: The solver's answer, with indices into the lists of the request.
    """
    try:
        return [
            (asked.slots[slot], asked.jobs[config], asked.partitions[partition])
            for config, partition, slot in result["placed"]
        ]
    except (KeyError, IndexError, TypeError, ValueError):
        return []
