"""Measures the time of a unit on 1, 2, 4, ... slots of each kind of host (`SlotView.hardware`) by short runs of waiting jobs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from hopyard.policy import Cluster, JobState, RunEnd
from hopyard.policy.vocabulary import ApplicationStat, RunEndReason, RunMode

_TRIES: Final = 3
"""Number of attempts at a profiling run that was lost or preempted."""


class ProfileBuilder:
    """Builds a profile for each kind of host: the seconds of a unit (one position of training) on 1, 2, 4, ... slots.

    The number of slots is doubled while the largest measured gang is efficient enough. The efficiency of a gang is the slot time
    of a unit (seconds times slots) on the smallest measured gang, divided by that on this gang.

    Profiles start with the measurements of earlier experiments (`Cluster.scaling`). The rest is measured with waiting
    jobs, on slots of one kind that no other job waits for: the job is run with `RunMode.PROFILE` before it starts.
    The results are reports in the journal, and the job loses nothing but time. A program that cannot be profiled trains
    on one slot.

    Args:
        most: The largest number of slots to try.
        efficiency: Larger gangs are not tried if the efficiency of the largest measured gang is below this value, in (0, 1].
        anew: Ignore measurements of earlier experiments.

    Attributes:
        profiles: By kind of host, the seconds of a unit by number of slots.
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
        """Load the measurements of earlier experiments. Later calls have no effect, nor has any call if `anew` was given.

        Args:
            scaling: The seconds of a unit, by kind of host and number of slots. A kind without a time for one slot is ignored.
        """
        if self._knows:
            return
        self._knows = True
        for kind, measured in sorted(scaling.items()):
            profile = {size: measured[size] for size in sorted(measured) if size <= self._most}
            if 1 in profile:
                self.profiles[kind] = profile
                self._judge(kind)

    def wanted(self, kind: str) -> int:
        """Return the number of slots of a kind of host to measure next; 0: the kind needs no further measurement."""
        profile = self.profiles.get(kind)
        wanted = 2 * max(profile) if profile else 1
        return 0 if self._given_up or kind in self._over or wanted > self._most else wanted

    def room(self, kinds: Iterable[str]) -> int:
        """Return how many slots a waiting job may use for profiling: the parameter `most` while a kind must be measured, else 0.

        Args:
            kinds: The kinds of host of the present slots. If there are none, `most` is returned while nothing is measured.
        """
        there = set(kinds)
        trying = any(map(self.wanted, there)) if there else not self.profiles and not self._given_up
        return self._most if trying else 0

    def holds(self, job: str) -> bool:
        """Return whether a job is being profiled."""
        return job == self._job

    def begin(self, cluster: Cluster, job: str, others: int) -> tuple[str, ...]:
        """Start a profiling run of a waiting job, if enough slots of one kind are idle that no other job waits for.

        Args:
            cluster: The view of the up-call; receives the command.
            job: The id of the job.
            others: The number of other jobs that wait for slots.

        Returns:
            The slots of the profiling run; empty: none was started, so the job may start to train.
        """
        if self._job:
            return ()
        idle = cluster.idle_slots()
        counts = Counter(slot.hardware for slot in idle)
        for kind in sorted(counts):
            wanted = self.wanted(kind)
            # On one slot, profiling is useful only if more slots follow.
            if wanted and min(counts[kind], len(idle) - others) >= max(wanted, 2):
                slots = tuple([slot.id for slot in idle if slot.hardware == kind][:wanted])
                self._job, self._kind = job, kind
                cluster.start_job(job, slots, mode=RunMode.PROFILE)
                return slots
        return ()

    def look(self, cluster: Cluster) -> None:
        """Detect whether the engine refused to start the profiling run: its job is neither starting, running nor suspending.

        The profiling run is repeated later, up to `_TRIES` attempts; then profiling stops.
        """
        if self._job and cluster.jobs[self._job].state not in (
            JobState.STARTING,
            JobState.RUNNING,
            JobState.SUSPENDING,
        ):
            self._again()

    def took(self, stat: ApplicationStat) -> None:
        """Record the time that the profiling run has measured. If it is not positive and finite, no further profiling run starts.

        Args:
            stat: The report of the profiling run, with the metric `seconds`. A report of another job is ignored.
        """
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
        """Record the end of a profiling run; ignore other runs.

        If the profiling run failed, no further profiling run starts. A lost or preempted run is repeated, up to `_TRIES` attempts.
        """
        if run.mode is not RunMode.PROFILE or run.job != self._job:
            return
        if run.reason is RunEndReason.FAILED:
            self._given_up = True
        if run.reason in (RunEndReason.LOST, RunEndReason.PREEMPTED):
            self._again()
        self._job = ""

    def _judge(self, kind: str) -> None:
        """Stop measuring a kind of host if the efficiency of its largest measured gang is below the parameter `efficiency`.

        The efficiency is the slot time of a unit (seconds times slots) on the smallest measured gang, divided by that on the largest.
        """
        profile = self.profiles[kind]
        size, least = max(profile), min(profile)
        if least * profile[least] < self._efficiency * size * profile[size]:
            self._over.add(kind)

    def _again(self) -> None:
        self._job = ""
        self._tries += 1
        self._given_up = self._given_up or self._tries >= _TRIES
