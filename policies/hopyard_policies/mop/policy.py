"""Model hopper parallelism: the data stay where they are, and the models hop from machine to machine."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from hopyard.policy import (
    Cluster,
    Data,
    ExperimentChange,
    JobState,
    JobView,
    MachinesChange,
    Policy,
    RunEnd,
    RunEndReason,
    RunMode,
    Verdict,
)
from hopyard.policy.vocabulary import StartJob
from hopyard_policies import creating
from hopyard_policies.mop.books import Running, Visits
from hopyard_policies.mop.dispatch import Randomized, Rule
from hopyard_policies.mop.estimates import Estimates
from hopyard_policies.mop.planning import dispatcher
from hopyard_policies.mop.problem import Problem
from hopyard_policies.mop.round import Round
from hopyard_policies.parameters import need_whole

MOST: Final = 256
"""Configurations that train at a time if nothing else is said."""

RULES: Final = ("longest", "randomized")


class MopPolicy(Policy):
    """Model hopper parallelism (Cerebro): each configuration visits each partition of the data once an epoch.

    A training unit is a run of one position on a machine whose node holds its partition; then the model hops to another one. No
    configuration is trained twice at once, no machine trains two, and no unit is interrupted. An epoch is as many positions as
    there are partitions to train on, so `max_iterations` is epochs x partitions.

    After each epoch a configuration is evaluated on each partition of the evaluation data, where these lie, and the results are
    combined by their numbers of examples. One that has trained to its end is complete when it has been evaluated.

    A unit that was lost is trained again, on another node that holds the partition, or when one does. A job whose newest snapshot
    was lost trains the same partitions again as before, in the same order, as long as somebody holds them.

    Args:
        scheduler: Who runs where. `longest`: idle machines choose in order of largest remaining load, each takes the
            configuration with the longest remaining time that still needs it; costs of configurations and speeds of machines are
            estimated from the units that ended. `randomized`: Cerebro's Algorithm 1.
        configurations: How many configurations train at a time, at least 1; None: all of the experiment, up to 256.
        barrier: Whether none begins an epoch before all have been through the one before, evaluation included.

    Raises:
        ValueError: An argument is out of range.
    """

    evaluates = True
    ship_every = 0

    def __init__(self, scheduler: str = "longest", configurations: int | None = None, barrier: bool = False) -> None:
        if scheduler not in RULES:
            raise ValueError(f"scheduler is {scheduler!r}; it must be one of {', '.join(RULES)}")
        if configurations is not None:
            need_whole("configurations", configurations)
        if type(barrier) is not bool:
            raise ValueError(f"barrier is {barrier!r}; it must be true or false")
        self._random = scheduler == "randomized"
        self._most = min(configurations or MOST, creating.AT_ONCE)
        self._barrier = barrier
        self._visits = Visits()
        self._estimates = Estimates()
        self._goals: dict[str, int] = {}  # Where the present epoch of each job ends.
        self._evaluated: dict[tuple[str, int], set[str]] = {}
        self._evaluating: dict[str, str] = {}
        self._round: Round | None = None
        self._plans = 0

    # ---------------------------------------------------------------------------------------------------------- up-calls

    def allocate_jobs(self, cluster: Cluster) -> None:
        """Starts evaluations and training units on idle machines, and creates the configurations that there are to be."""
        data = cluster.data
        if data is None or not data.train:
            raise ValueError(
                "mop trains where partitions of the data lie, and the experiment names no partitioned data; register some with "
                "`hopyard data register` and name it in the experiment file: `data: NAME`"
            )
        under_way = self._advance(cluster, data)
        self._evaluate(cluster, data)
        self._train(cluster, data)
        if self._barrier and under_way:
            return  # New ones begin together with the others.
        there = cluster.count(*(state for state in JobState if not state.ended))
        for _ in range(creating.room(cluster, min(self._most - there, cluster.experiment.jobs_left))):
            cluster.create_job()

    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        """A unit or an evaluation is over; one that was lost is still to be done."""
        if run.mode is RunMode.EVALUATE:
            part = self._evaluating.pop(run.job, "")
            if run.reason is RunEndReason.UNTIL:
                self._evaluated.setdefault((run.job, run.position), set()).add(part)
        else:
            unit = self._visits.end(run)
            if unit is None or self._round is None or not self._round.ended(unit.machine, cluster.now - unit.began):
                self._round = None
        if cluster.jobs[run.job].state.ended:
            self._forget(run.job)

    def on_refused(self, cluster: Cluster, verdict: Verdict) -> None:
        """What did not start is looked at anew."""
        if isinstance(verdict.command, StartJob):
            self._visits.forget(verdict.command.job)
            self._evaluating.pop(verdict.command.job, None)
            self._round = None

    def on_machines_change(self, cluster: Cluster, change: MachinesChange) -> None:
        """Partitions may lie elsewhere now."""
        self._round = None

    def on_experiment_change(self, cluster: Cluster, change: ExperimentChange) -> None:
        """Jobs may go on further than before."""
        self._round = None

    def demand(self, cluster: Cluster) -> int | None:
        """All machines while there is something to do, and more as long as one that holds a partition is not among them."""
        if not cluster.open_jobs() and not cluster.experiment.jobs_left:
            return 0
        if cluster.data is None:
            return None
        nodes = {machine.node for machine in cluster.machines.values()}
        apart = sum(not nodes.intersection(each.nodes) for each in (*cluster.data.train, *cluster.data.evaluate))
        return len(cluster.machines) + apart if apart else None

    # ------------------------------------------------------------------------------------------------------------ epochs

    def _advance(self, cluster: Cluster, data: Data) -> bool:
        """Lets those that have been through their epoch begin the next one; those that have been through all are complete.

        Returns:
            Whether some are still in their epoch.
        """
        epoch = len(data.train)
        new: list[JobView] = []
        through: list[JobView] = []
        under_way = False
        for job in self._open(cluster):
            goal = self._goals.get(job.id, 0)
            if job.position < goal:  # It may have been thrown back into an epoch before.
                self._goals[job.id] = goal = min(goal, _end_of_epoch(job, epoch))
            if job.position < goal or job.state.live or self._parts_left(job, data):
                under_way = True
            elif job.position >= job.max_position:
                cluster.answer_job(job.id, job.id, job.position)
                self._forget(job.id)
            else:
                (through if goal else new).append(job)
        for job in new if self._barrier and under_way else new + through:
            self._goals[job.id] = _end_of_epoch(job, epoch)
        return under_way

    def _open(self, cluster: Cluster) -> list[JobView]:
        """Jobs that train or wait to, of experiments that run."""
        running = {name for name, experiment in cluster.experiments.items() if experiment.running}
        return [
            job
            for job in cluster.open_jobs()
            if job.experiment in running and job.state not in (JobState.CREATING, JobState.HELD)
        ]

    def _forget(self, job: str) -> None:
        self._goals.pop(job, None)
        self._visits.forget(job)
        for key in [key for key in self._evaluated if key[0] == job]:
            del self._evaluated[key]

    # -------------------------------------------------------------------------------------------------------- evaluation

    def _parts_left(self, job: JobView, data: Data) -> list[str]:
        """Where a job that stands at the end of its epoch is still to be evaluated."""
        if job.position == 0 or job.position != self._goals.get(job.id):
            return []
        done = self._evaluated.get((job.id, job.position), ())
        return [each.name for each in data.evaluate if each.name not in done]

    def _evaluate(self, cluster: Cluster, data: Data) -> None:
        """Evaluates those that have been through their epoch: they hold up others, and it takes little time."""
        if not data.evaluate:
            return
        holders = {each.name: each.nodes for each in data.evaluate}
        waiting = {job.id: parts for job in cluster.idle_jobs() if (parts := self._parts_left(job, data))}
        for machine in cluster.idle_machines():
            for job, parts in waiting.items():
                part = next((name for name in parts if machine.node in holders[name]), None)
                if part is not None:
                    self._evaluating[job] = part
                    inputs, count = {machine.id: part}, len(data.evaluate)
                    cluster.start_job(job, machine.id, mode=RunMode.EVALUATE, inputs=inputs, parts=count)
                    del waiting[job]
                    break

    # ---------------------------------------------------------------------------------------------------------- training

    def _train(self, cluster: Cluster, data: Data) -> None:
        """Starts units on idle machines, as the scheduler says."""
        jobs = [job for job in self._open(cluster) if job.position < self._goals.get(job.id, 0)]
        able = {job.id for job in cluster.idle_jobs()}
        if self._round is None or not self._round.goes_on(cluster.machines, jobs, self._goals, able):
            self._plans += 1
            make = self._randomly(cluster) if self._random else dispatcher
            self._round = Round(cluster, data, jobs, self._goals, self._visits, self._estimates, make)
            self._round.goes_on(cluster.machines, jobs, self._goals, able)
        for machine, job, partition in self._round.start([each.id for each in cluster.idle_machines()], cluster.now):
            position = cluster.jobs[job].position
            self._visits.start(job, Running(position, partition, machine, cluster.now))
            inputs = {machine: partition}
            cluster.start_job(job, machine, until=position + 1, inputs=inputs, preemptible=False)

    def _randomly(self, cluster: Cluster) -> Callable[[Problem], Rule]:
        rng = random.Random(f"{cluster.experiment.seed}/mop/{self._plans}")
        return lambda problem: Randomized(problem, rng)


def _end_of_epoch(job: JobView, epoch: int) -> int:
    """Where the epoch ends that a job is in."""
    return min((job.position // epoch + 1) * epoch, job.max_position)
