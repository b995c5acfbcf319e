"""Pilot runs: short runs on a few examples that measure the training time of each configuration before its first unit."""

from __future__ import annotations

from typing import Final

from hopyard.policy import ApplicationStat, Cluster, Data, JobState, JobView, RunEnd, RunEndReason, RunMode
from hopyard_policies.mop.schedule.estimates import Estimates
from hopyard_policies.mop.visit_history import size

LOSSES: Final = 3
"""Number of lost pilot runs after which the policy continues without them."""


class Pilot:
    """Starts one pilot run of each job before its first unit, and pilot runs of the first waiting job on every slot.

    A pilot run trains on a few examples, to measure the time of a unit; its training is discarded.

    The runs of one job on every slot separate the costs of configurations from the speeds of slots. No job starts to
    train before the first moment at which no pilot run is under way and no job is in creation. Jobs created later are profiled
    when slots are idle. If a program cannot be profiled, the policy continues without pilot runs.

    Args:
        estimates: Receives the measured times.
    """

    def __init__(self, estimates: Estimates) -> None:
        self._estimates = estimates
        self._under_way: dict[str, str] = {}  # The slot of each job being profiled.
        self._everywhere = ""  # The job that is profiled on every slot,
        self._visited: set[str] = set()  # and the slots where it was profiled.
        self._profiled: set[str] = set()  # Jobs that were profiled, with any result.
        self._lost = 0
        self._begun = self._over = False

    def start(self, cluster: Cluster, data: Data, waiting: list[JobView]) -> bool:
        """Start pilot runs on idle slots. They measure the seconds per unit, from which training is scheduled.

        Args:
            cluster: The view of the up-call.
            data: The partitions of the training data, and the nodes that hold them.
            waiting: Idle jobs that the tuner wants trained beyond their present positions.

        Returns:
            True while no training unit may start, because the pilot runs of the first jobs have not ended.
        """
        if self._over:
            return False
        inputs = {
            slot.id: next((each.name for each in data.train if slot.node in each.nodes), "")
            for slot in cluster.slots.values()
        }
        if not self._everywhere and waiting:
            self._everywhere = waiting[0].id
        for slot in cluster.idle_slots():
            job = self._chosen(slot.id, waiting) if inputs[slot.id] else None
            if job is not None:
                waiting = [other for other in waiting if other is not job]
                self._under_way[job.id] = slot.id
                given = {slot.id: inputs[slot.id]}
                cluster.start_job(job.id, slot.id, mode=RunMode.PROFILE, inputs=given)
        if not self._under_way and self._everywhere and not cluster.count(JobState.CREATING):
            self._begun = True
        return not self._begun

    def told(self, data: Data, stat: ApplicationStat) -> None:
        """Add the training time that a pilot run has reported to the estimates.

        Args:
            data: The partitions, whose sizes relate the times of different partitions.
            stat: The report of a pilot run. Its metric `seconds` is the time of one unit on the partition `stat.input`.
        """
        sizes = {each.name: size(each, data.train) for each in data.train}
        mean = sum(sizes.values()) / len(sizes)
        slot = self._under_way.get(stat.job)
        if slot is not None:
            self._estimates.learn(stat.job, slot, sizes[stat.input] / mean, stat.report.metrics.get("seconds", 0.0))

    def ended(self, run: RunEnd) -> None:
        """Record the end of a pilot run. If it failed or more than `LOSSES` pilot runs were lost, no further one starts.

        A pilot run trains on a few examples, to measure the time of a unit.

        Args:
            run: The ended run; it must be a pilot run.
        """
        slot = self._under_way.pop(run.job, "")
        if run.job == self._everywhere:
            self._visited.add(slot)
        if run.reason is RunEndReason.UNTIL:
            self._profiled.add(run.job)
        self._lost += run.reason is RunEndReason.LOST
        self._over = self._over or run.reason is RunEndReason.FAILED or self._lost > LOSSES

    def forget(self, job: str) -> None:
        """Delete the record of a job's pilot run, a short run that measures the time of a unit; do nothing if none is under way.

        Call it when the pilot run did not start or the job will not run again. The job may get another pilot run.
        """
        self._under_way.pop(job, None)
        if job == self._everywhere:
            self._everywhere = ""

    def _chosen(self, slot: str, waiting: list[JobView]) -> JobView | None:
        """Return the job of which a pilot run should start on the idle slot with the id `slot`; None: no job.

        A pilot run measures the time of a unit. The job that is measured on every slot comes first, if it has not been measured on
        this one; then the first of `waiting` that has had no successful pilot run and whose time is unknown.

        Args:
            slot: The id of the slot.
            waiting: Idle jobs that the tuner wants trained beyond their present positions.
        """
        for job in waiting:
            if job.id == self._everywhere and slot not in self._visited:
                return job
        new = (job for job in waiting if job.id not in self._profiled)
        return next((job for job in new if not self._estimates.know([job.id], ())), None)
