"""How long a unit takes on 1, 2, 4, ... machines, found out by short runs of jobs that are about to start, for each kind of host."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from hopyard.policy import Cluster, JobState, RunEnd
from hopyard.policy.vocabulary import ApplicationStat, RunEndReason, RunMode

_TRIES: Final = 3
"""So often a profile is begun anew that was lost or preempted."""


class Measuring:
    """Profiles as they grow, one for each kind of host: twice as many machines each time, while these are efficient enough.

    They begin with what earlier experiments measured (`Cluster.scaling`). For the rest a job that waits, and machines of one kind that
    nobody else waits for, are made use of: it is profiled (`RunMode.PROFILE`) before it starts. So what comes of it is journalled as
    all reports are, and it costs the job nothing but time. A program that cannot be profiled trains on one machine.

    Args:
        most: The most machines to try.
        efficiency: What they must have, or no more are tried.
        anew: Whether all is measured here, whatever is known.
    """

    def __init__(self, most: int, efficiency: float, *, anew: bool = False) -> None:
        self.profiles: dict[str, dict[int, float]] = {}
        self._most, self._efficiency = most, efficiency
        self._job = self._kind = ""
        self._tries = 0
        self._over: set[str] = set()
        self._given_up = False
        self._knows = anew

    def know(self, scaling: Mapping[str, Mapping[int, float]]) -> None:
        """Takes what earlier experiments measured, the first time that it is told."""
        if self._knows:
            return
        self._knows = True
        for kind, measured in sorted(scaling.items()):
            profile = {size: measured[size] for size in sorted(measured) if size <= self._most}
            if 1 in profile:
                self.profiles[kind] = profile
                self._judge(kind)

    def wanted(self, kind: str) -> int:
        """How many machines of a kind are to be tried next; 0: no more."""
        profile = self.profiles.get(kind)
        wanted = 2 * max(profile) if profile else 1
        return 0 if self._given_up or kind in self._over or wanted > self._most else wanted

    def room(self, kinds: Iterable[str]) -> int:
        """Machines that a job that waits can be of use on: all that may have to be tried on one of these kinds, or none.

        Before there are any machines nothing is known of their kinds: then all count if nothing at all was measured.
        """
        there = set(kinds)
        trying = any(map(self.wanted, there)) if there else not self.profiles and not self._given_up
        return self._most if trying else 0

    def holds(self, job: str) -> bool:
        """Whether a job is being profiled."""
        return job == self._job

    def begin(self, cluster: Cluster, job: str, others: int) -> tuple[str, ...]:
        """Profiles a job that is about to start, if there are machines of one kind for it that `others` jobs do not wait for.

        Returns:
            The machines; none: it may start.
        """
        if self._job:
            return ()
        idle = cluster.idle_machines()
        counts = Counter(machine.hardware for machine in idle)
        for kind in sorted(counts):
            wanted = self.wanted(kind)
            # On one machine alone only what more of them might bring is of interest.
            if wanted and min(counts[kind], len(idle) - others) >= max(wanted, 2):
                machines = tuple([machine.id for machine in idle if machine.hardware == kind][:wanted])
                self._job, self._kind = job, kind
                cluster.start_job(job, machines, mode=RunMode.PROFILE)
                return machines
        return ()

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
        seconds, size = stat.report.metrics.get("seconds", math.nan), self.wanted(self._kind)
        if not 0 < seconds < math.inf:
            self._given_up = True
        elif size:
            self.profiles.setdefault(self._kind, {})[size] = seconds
            self._tries = 0
            self._judge(self._kind)

    def ended(self, run: RunEnd) -> None:
        """A profiling run is over: nothing came of one that failed, and one that was lost is tried again."""
        if run.mode is not RunMode.PROFILE or run.job != self._job:
            return
        if run.reason is RunEndReason.FAILED:
            self._given_up = True
        if run.reason in (RunEndReason.LOST, RunEndReason.PREEMPTED):
            self._again()
        self._job = ""

    def _judge(self, kind: str) -> None:
        """No more machines are tried than so many that are not efficient any more."""
        profile = self.profiles[kind]
        size, least = max(profile), min(profile)
        if least * profile[least] < self._efficiency * size * profile[size]:
            self._over.add(kind)

    def _again(self) -> None:
        self._job = ""
        self._tries += 1
        self._given_up = self._given_up or self._tries >= _TRIES
