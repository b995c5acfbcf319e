"""Starts training units.

A unit runs on one slot or, as a gang, several units of a job run on several slots at the same time. Units on one slot are chosen by a
`Round`, a schedule of the remaining units that is used until jobs, slots or times differ from those that it expects.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence

from hopyard.policy import Cluster, Data, JobView, RunEnd, RunEndReason, RunMode
from hopyard_policies.mop.gangs import Gangs, Need, Visit, visits
from hopyard_policies.mop.milp_plans import MilpPlans
from hopyard_policies.mop.problem_builder import Round
from hopyard_policies.mop.schedule.dispatch import Randomized, Rule
from hopyard_policies.mop.schedule.estimates import Estimates
from hopyard_policies.mop.schedule.planning import dispatcher
from hopyard_policies.mop.schedule.problem import VisitProblem
from hopyard_policies.mop.visit_history import RunningUnit, VisitHistory

Saves = Callable[[str, int], bool]
"""Takes a job id and the end position of a run. Returns whether the run must save a snapshot there for forks."""

Left = Callable[[JobView], Collection[str]]
"""Takes a job. Returns the names of the partitions on which it must still be trained or evaluated in its present epoch."""


class Training:
    """Starts training units and tracks them until their runs end.

    Args:
        randomized: Use the randomized scheduler of the Cerebro paper.
        exact: The plans of the exact scheduler, a mixed-integer program in a solver process; None: it is not used.
        gangs: Decides when models train on gangs.
        visits: The history of visits, with running units.
        estimates: Estimates of costs and speeds.
    """

    def __init__(
        self, randomized: bool, exact: MilpPlans | None, gangs: Gangs, visits: VisitHistory, estimates: Estimates
    ) -> None:
        self._random, self._exact, self._gangs = randomized, exact, gangs
        self._visits, self._estimates = visits, estimates
        self._round: Round | None = None
        self._plans = 0

    def start(
        self,
        cluster: Cluster,
        data: Data,
        jobs: Sequence[JobView],
        goals: Mapping[str, int],
        wanted: Mapping[str, int],
        epochs: int,
        saves: Saves,
    ) -> None:
        """Start one unit on each idle slot for which the present schedule has one.

        Args:
            cluster: The view of the up-call.
            data: The partitions and their nodes.
            jobs: Jobs with remaining units in their epochs.
            goals: The position at which the present epoch of each job ends.
            wanted: The position up to which the tuner wants each job trained, as far as known.
            epochs: The policy's counter, which increases whenever an epoch of any job begins; this invalidates the solver's plans.
            saves: Returns whether a run must save a snapshot for forks at a position.
        """
        able = {job.id for job in cluster.idle_jobs()}
        if self._round is None or not self._round.goes_on(cluster.slots, jobs, goals, able):
            self._plans += 1
            make = self._randomly(cluster) if self._random else self._longest(jobs, cluster.slots)
            self._round = Round(cluster, data, jobs, goals, wanted, self._visits, self._estimates, make)
            self._round.goes_on(cluster.slots, jobs, goals, able)
        if self._exact is not None:
            self._exact.guide(self._round, epochs, cluster.now)
        for slot, job, partition in self._round.start([each.id for each in cluster.idle_slots()], cluster.now):
            self._begin(cluster, Visit(job, (partition,), (slot,)), saves)
        if self._exact is not None:
            self._exact.ask(cluster, self._round, epochs)

    def start_together(
        self, cluster: Cluster, data: Data, jobs: Sequence[JobView], ends: Mapping[str, int], left: Left, saves: Saves
    ) -> None:
        """Start gangs: jobs with the least position first, each on all slots that it can use at the same time.

        The first gang of an untested program is a test run, which finds out whether the program can train on a gang; its training is
        discarded. Nothing starts while a test run is pending.

        Args:
            cluster: The view of the up-call.
            data: The partitions and their nodes.
            jobs: Jobs with remaining units in their epochs.
            ends: The position up to which each job is trained in its present epoch.
            left: Returns the partitions on which a job must still be trained or evaluated in its present epoch.
            saves: Returns whether a run must save a snapshot for forks at a position.
        """
        self._round = None
        if self._gangs.waits:
            return
        idle = [slot.id for slot in cluster.idle_slots()]
        able = {job.id for job in cluster.idle_jobs()}
        waiting = sorted((job for job in jobs if job.id in able), key=lambda job: job.position)
        holders = {
            each.name: [slot.id for slot in cluster.slots.values() if slot.node in each.nodes] for each in data.train
        }
        needs = []
        for job in waiting:
            names, most = left(job), ends[job.id] - job.position if self._gangs.fits(job) else 1
            needs.append(Need(job.id, [name for name in holders if name in names], most))
        for visit in visits(needs, holders, idle, cluster.share):
            if len(visit.slots) > 1 and self._gangs.tries(cluster.jobs[visit.job]):
                cluster.start_job(visit.job, visit.slots, mode=RunMode.PROFILE, inputs=_inputs(visit))
                return
            self._begin(cluster, visit, saves)

    def ended(self, run: RunEnd, now: float) -> None:
        """Record the end of a training run. Discard the present schedule (`Round`) if it has no running unit on the run's slot.

        The schedule is also discarded if the training was lost or the run was a gang.

        Args:
            run: The ended run.
            now: The present time in seconds (`Cluster.now`).
        """
        began = self._visits.running.get(run.job)
        if began is not None and len(began.slots) > 1 and run.reason is RunEndReason.FAILED:
            self._gangs.failed(run.job)
        unit = self._visits.end(run)
        if unit is None or len(unit.slots) > 1 or not self._expected(unit, now):
            self._round = None

    def anew(self) -> None:
        """Discard the present schedule, because its inputs have changed. The next `start` makes a new one."""
        self._round = None

    def _expected(self, unit: RunningUnit, now: float) -> bool:
        return self._round is not None and self._round.ended(unit.slots[0], now - unit.began)

    def _begin(self, cluster: Cluster, visit: Visit, saves: Saves) -> None:
        job, position = visit.job, cluster.jobs[visit.job].position
        self._visits.start(job, RunningUnit(position, visit.partitions, visit.slots, cluster.now))
        until = position + len(visit.partitions)
        at = [until] if saves(job, until) else []
        inputs = _inputs(visit)
        cluster.start_job(job, visit.slots, until=until, snapshot_at=at, inputs=inputs, preemptible=False)

    def _longest(self, jobs: Sequence[JobView], slots: Collection[str]) -> Callable[[VisitProblem], Rule]:
        names = [job.id for job in jobs], list(slots)
        return lambda problem: dispatcher(problem, self._estimates.know(*names))

    def _randomly(self, cluster: Cluster) -> Callable[[VisitProblem], Rule]:
        rng = random.Random(f"{cluster.experiment.seed}/mop/{self._plans}")
        return lambda problem: Randomized(problem, rng)


def _inputs(visit: Visit) -> dict[str, str]:
    return dict(zip(visit.slots, visit.partitions, strict=True))
