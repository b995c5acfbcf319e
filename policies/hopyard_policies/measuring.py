"""How long a unit takes on 1, 2, 4, ... machines, found out by short runs of jobs that are about to start."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from hopyard.policy import Cluster, JobState, RunEnd
from hopyard.policy.vocabulary import ApplicationStat, RunEndReason, RunMode

_TRIES: Final = 3
"""So often a profile is begun anew that was lost or preempted."""


class Measuring:
    """A profile as it grows: twice as many machines each time, while these are efficient enough.

    A job that waits, and machines that nobody else waits for, are made use of: it is profiled (`RunMode.PROFILE`) before it starts. So
    what comes of it is journalled as all reports are, and it costs the job nothing but time. A program that cannot be profiled trains
    on one machine.

    Args:
        most: The most machines to try.
        efficiency: What they must have, or no more are tried.
    """

    def __init__(self, most: int, efficiency: float) -> None:
        self.profile: dict[int, float] = {}
        self._most, self._efficiency = most, efficiency
        self._job = ""
        self._tries = 0
        self._over = False

    @property
    def wanted(self) -> int:
        """How many machines are to be tried next; 0: no more."""
        wanted = 2 * max(self.profile) if self.profile else 1
        return 0 if self._over or wanted > self._most else wanted

    @property
    def room(self) -> int:
        """Machines that a job that waits can be of use on: all that may have to be tried, or none."""
        return self._most if self.wanted else 0

    def holds(self, job: str) -> bool:
        """Whether a job is being profiled."""
        return job == self._job

    def begin(self, cluster: Cluster, job: str, others: int) -> tuple[str, ...]:
        """Profiles a job that is about to start, if there are machines for it that `others` jobs do not wait for.

        Returns:
            The machines; none: it may start.
        """
        idle = [machine.id for machine in cluster.idle_machines()]
        # On one machine alone only what more of them might bring is of interest.
        if self._job or not self.wanted or len(idle) - others < max(self.wanted, 2):
            return ()
        machines = tuple(idle[: self.wanted])
        self._job = job
        cluster.start_job(job, machines, mode=RunMode.PROFILE)
        return machines

    def look(self, cluster: Cluster) -> None:
        """Forgets a profile that was refused: its job waits or trains."""
        if self._job and cluster.jobs[self._job].state not in (
            JobState.STARTING,
            JobState.RUNNING,
            JobState.SUSPENDING,
        ):
            self._again()

    def took(self, stat: ApplicationStat) -> None:
        """A profile is there."""
        if stat.job != self._job:
            return
        seconds, size = stat.report.metrics.get("seconds", math.nan), self.wanted
        if not 0 < seconds < math.inf:
            self._over = True
        elif size:
            self.profile[size] = seconds
            self._tries = 0
            least = min(self.profile)
            self._over = least * self.profile[least] < self._efficiency * size * seconds

    def ended(self, run: RunEnd) -> None:
        """A profiling run is over: nothing came of one that failed, and one that was lost is tried again."""
        if run.mode is not RunMode.PROFILE or run.job != self._job:
            return
        if run.reason is RunEndReason.FAILED:
            self._over = True
        if run.reason in (RunEndReason.LOST, RunEndReason.PREEMPTED):
            self._again()
        self._job = ""

    def _again(self) -> None:
        self._job = ""
        self._tries += 1
        self._over = self._over or self._tries >= _TRIES


def measured(profile: Mapping[int, float]) -> Mapping[int, float]:
    """A profile to go by: before anything is measured, one machine."""
    return profile or {1: 1.0}
