"""Plans of the exact scheduler: asked for beside the scheduler, with a time limit, and followed when they come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from hopyard.policy import AnswerReady, Cluster
from hopyard_policies.mop.problem_builder import Round, Step
from hopyard_policies.mop.schedule.dispatch import Following
from hopyard_policies.mop.schedule.planning import dispatcher
from hopyard_policies.mop.schedule.problem import VisitProblem, VisitSchedule, to_plain
from hopyard_policies.mop.schedule.replica_assignment import host, loads
from hopyard_policies.mop.schedule.simulation import carry_out

KIND: Final = "mop_milp"
"""The solver that is asked."""

PART: Final = 0.25
"""How much of the time that an epoch takes at least may be thought about it: later a plan would have little left to plan."""

LEAST: Final = 0.5
"""Seconds that may be thought in any case."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question that is open, and what the numbers in it stand for."""

    ticket: str
    jobs: Sequence[str]
    machines: Sequence[str]
    partitions: Sequence[str]
    epoch: int


class Exact:
    """Asks for a plan of each epoch, once the times of all that takes part are known, and has rounds follow it.

    Until it comes, and if there is none, or one that is worse than what the default scheduler would do with what is left by
    then, that one goes on.

    Args:
        seconds: How long a plan may be thought about; at most a part of what the epoch takes, too.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._asked: _Asked | None = None
        self._tried: object = None
        self._plan: Sequence[Step] = ()
        self._epoch = 0  # That it is of.
        self._fresh = False
        self._followed: Round | None = None

    def guide(self, ahead: Round, epoch: int, now: float) -> None:
        """Has a round follow the plan that there is, before it decides.

        Args:
            ahead: The round.
            epoch: Changes whenever an epoch begins.
            now: The time.
        """
        if self._plan and (self._epoch != epoch or not self._follow(now, ahead)):
            self._plan = ()

    def ask(self, cluster: Cluster, ahead: Round, epoch: int) -> None:
        """Asks for a plan of what is left now that a round has decided, if there is reason to.

        Args:
            cluster: Where to ask.
            ahead: The round.
            epoch: As before.
        """
        reason = epoch, tuple(cluster.machines)
        if self._plan or self._asked is not None or self._tried == reason or not ahead.known:
            return
        left = replace(ahead.left(cluster.now), config_after=())
        if not left.units:
            return
        self._tried = reason
        ends = loads(left, host(left))
        seconds = min(self._seconds, max(PART * max(ends[0] + ends[1]), LEAST))
        ticket = cluster.ask(KIND, to_plain(left), seconds=seconds)
        self._asked = _Asked(ticket, ahead.jobs, ahead.machines, ahead.partitions, epoch)

    def heard(self, answer: AnswerReady) -> None:
        """Takes note of an answer."""
        asked = self._asked
        if asked is None or answer.ticket != asked.ticket:
            return
        self._asked = None
        if not answer.error:
            self._plan, self._epoch, self._fresh = _steps(asked, answer.result), asked.epoch, True

    def _follow(self, now: float, ahead: Round) -> bool:
        """Whether a round follows the plan from now on."""
        if ahead.follows:
            return True
        if ahead is self._followed:  # It did, and times turned out to be others than those that were planned with.
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
    """Whether all that is left is planned, on machines that can train it."""
    planned = {placed.unit for placed in plan.placed if placed.machine in left.holders[placed.unit.partition]}
    return planned.issuperset(left.units)


def _helps(plan: VisitSchedule, left: VisitProblem) -> bool:
    """Whether it is over with the plan no later than with the default scheduler; what ran meanwhile was not planned for."""
    return carry_out(left, Following(left, plan)).makespan <= carry_out(left, dispatcher(left)).makespan * (1 + 1e-9)


def _steps(asked: _Asked, result: Any) -> list[Step]:
    """The plan of an answer; none, if that is no plan."""
    try:
        return [
            (asked.machines[machine], asked.jobs[config], asked.partitions[partition])
            for config, partition, machine in result["placed"]
        ]
    except (KeyError, IndexError, TypeError, ValueError):
        return []
