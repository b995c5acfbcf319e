"""Pilot runs: a few examples of each configuration, before its first unit, so that plans are made with times that are known."""

from __future__ import annotations

from typing import Final

from hopyard.policy import ApplicationStat, Cluster, Data, JobState, JobView, RunEnd, RunEndReason, RunMode
from hopyard_policies.mop.schedule.estimates import Estimates
from hopyard_policies.mop.visit_history import size

LOSSES: Final = 3
"""Pilots that may be lost; then the policy goes on without."""


class Pilot:
    """Profiles each job once, and one of the first jobs on every machine: that tells costs from speeds.

    The first jobs train when all of them are profiled, later ones when there is time for it. With a program that cannot be profiled,
    all goes on without.

    Args:
        estimates: Where the times go.
    """

    def __init__(self, estimates: Estimates) -> None:
        self._estimates = estimates
        self._under_way: dict[str, str] = {}  # The machine of each job that is being profiled.
        self._everywhere = ""  # The job that is profiled on every machine,
        self._visited: set[str] = set()  # and where it was.
        self._profiled: set[str] = set()  # Once is enough, whatever came out.
        self._lost = 0
        self._begun = self._over = False

    def start(self, cluster: Cluster, data: Data, waiting: list[JobView]) -> bool:
        """Starts pilots on idle machines.

        Args:
            cluster: The cluster.
            data: What lies where.
            waiting: Jobs that wait for a machine and are to be trained.

        Returns:
            Whether training is to wait for them.
        """
        if self._over:
            return False
        inputs = {
            machine.id: next((each.name for each in data.train if machine.node in each.nodes), "")
            for machine in cluster.machines.values()
        }
        if not self._everywhere and waiting:
            self._everywhere = waiting[0].id
        for machine in cluster.idle_machines():
            job = self._chosen(machine.id, waiting) if inputs[machine.id] else None
            if job is not None:
                waiting = [other for other in waiting if other is not job]
                self._under_way[job.id] = machine.id
                given = {machine.id: inputs[machine.id]}
                cluster.start_job(job.id, machine.id, mode=RunMode.PROFILE, inputs=given)
        if not self._under_way and self._everywhere and not cluster.count(JobState.CREATING):
            self._begun = True
        return not self._begun

    def told(self, data: Data, stat: ApplicationStat) -> None:
        """Takes note of how long a unit takes."""
        sizes = {each.name: size(each, data.train) for each in data.train}
        mean = sum(sizes.values()) / len(sizes)
        machine = self._under_way.get(stat.job)
        if machine is not None:
            self._estimates.learn(stat.job, machine, sizes[stat.input] / mean, stat.report.metrics.get("seconds", 0.0))

    def ended(self, run: RunEnd) -> None:
        """A pilot is over."""
        machine = self._under_way.pop(run.job, "")
        if run.job == self._everywhere:
            self._visited.add(machine)
        if run.reason is RunEndReason.UNTIL:
            self._profiled.add(run.job)
        self._lost += run.reason is RunEndReason.LOST
        self._over = self._over or run.reason is RunEndReason.FAILED or self._lost > LOSSES

    def forget(self, job: str) -> None:
        """What was to be started did not, or the job will never run again."""
        self._under_way.pop(job, None)
        if job == self._everywhere:
            self._everywhere = ""

    def _chosen(self, machine: str, waiting: list[JobView]) -> JobView | None:
        """Whom to profile on an idle machine."""
        for job in waiting:
            if job.id == self._everywhere and machine not in self._visited:
                return job
        new = (job for job in waiting if job.id not in self._profiled)
        return next((job for job in new if not self._estimates.know([job.id], ())), None)
