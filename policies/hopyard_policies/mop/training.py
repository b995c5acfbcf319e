"""Which units begin now: as the scheduler says, in rounds that last until something comes that they did not expect."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence

from hopyard.policy import Cluster, Data, JobView, RunEnd
from hopyard_policies.mop.books import Running, Visits
from hopyard_policies.mop.dispatch import Randomized, Rule
from hopyard_policies.mop.estimates import Estimates
from hopyard_policies.mop.exact import Exact
from hopyard_policies.mop.planning import dispatcher
from hopyard_policies.mop.problem import Problem
from hopyard_policies.mop.round import Round

Saves = Callable[[str, int], bool]
"""Whether a job is to be saved at a position, beside the end of its run."""


class Training:
    """Starts training units, and follows them.

    Args:
        randomized: Whether the scheduler is the paper's random one.
        exact: Who plans epochs exactly; None: nobody.
        visits: What jobs have visited, and what they are trained on now.
        estimates: What is known of costs and speeds.
    """

    def __init__(self, randomized: bool, exact: Exact | None, visits: Visits, estimates: Estimates) -> None:
        self._random, self._exact = randomized, exact
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
        """Starts units on idle machines.

        Args:
            cluster: The cluster.
            data: What lies where.
            jobs: Those that have units left in their epochs.
            goals: Where the present epoch of each ends.
            wanted: Where each is to get in the end, as far as is known.
            epochs: Changes whenever an epoch begins.
            saves: Who may go on with a copy from where.
        """
        able = {job.id for job in cluster.idle_jobs()}
        if self._round is None or not self._round.goes_on(cluster.machines, jobs, goals, able):
            self._plans += 1
            make = self._randomly(cluster) if self._random else self._longest(jobs, cluster.machines)
            self._round = Round(cluster, data, jobs, goals, wanted, self._visits, self._estimates, make)
            self._round.goes_on(cluster.machines, jobs, goals, able)
        if self._exact is not None:
            self._exact.guide(self._round, epochs, cluster.now)
        for machine, job, partition in self._round.start([each.id for each in cluster.idle_machines()], cluster.now):
            self._begin(cluster, job, machine, partition, saves)
        if self._exact is not None:
            self._exact.ask(cluster, self._round, epochs)

    def ended(self, run: RunEnd, now: float) -> None:
        """Takes note of the end of a training run."""
        unit = self._visits.end(run)
        if unit is None or self._round is None or not self._round.ended(unit.machine, now - unit.began):
            self._round = None

    def anew(self) -> None:
        """Something has changed that the round that goes on knows nothing of."""
        self._round = None

    def _begin(self, cluster: Cluster, job: str, machine: str, partition: str, saves: Saves) -> None:
        position = cluster.jobs[job].position
        self._visits.start(job, Running(position, partition, machine, cluster.now))
        until = position + 1
        at = [until] if saves(job, until) else []
        cluster.start_job(job, machine, until=until, snapshot_at=at, inputs={machine: partition}, preemptible=False)

    def _longest(self, jobs: Sequence[JobView], machines: Collection[str]) -> Callable[[Problem], Rule]:
        names = [job.id for job in jobs], list(machines)
        return lambda problem: dispatcher(problem, self._estimates.know(*names))

    def _randomly(self, cluster: Cluster) -> Callable[[Problem], Rule]:
        rng = random.Random(f"{cluster.experiment.seed}/mop/{self._plans}")
        return lambda problem: Randomized(problem, rng)
