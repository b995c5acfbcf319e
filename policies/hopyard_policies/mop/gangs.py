"""Data-parallel gangs for few configurations, with a partition for each rank (Cerebro, section 5.7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hopyard.policy import ApplicationStat, Cluster, Data, JobView, RunEnd, RunEndReason

LOSSES: Final = 3
"""Number of lost trial runs on a gang after which models only hop."""

Options = Mapping[str, Collection[str]]
"""Partitions with the slots that hold them."""

_Unit = tuple[str, str]  # A job and a partition that it should visit.


@dataclass(frozen=True, slots=True)
class Visit:
    """Partitions that a job visits at the same time, and their slots in the order of ranks. A single partition is a hop."""

    job: str
    partitions: tuple[str, ...]
    slots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Need:
    """What a waiting job has left in its epoch: partitions in order, of which it may visit at most `most` at the same time."""

    job: str
    partitions: Sequence[str]
    most: int


class Gangs:
    """Decides when models train on gangs, and tests whether their programs can.

    Args:
        below: Use gangs if there are fewer configurations than this fraction of the slots with partitions, in 0..1;
            0: never.
    """

    def __init__(self, below: float) -> None:
        self._below = below
        # By experiment, because the experiments of a group may have different programs.
        self._able: dict[str, bool] = {}
        self._unfit: set[str] = set()
        self._trial: tuple[str, str] | None = None
        self._lost: Counter[str] = Counter()

    def wanted(self, cluster: Cluster, data: Data, configurations: int) -> bool:
        """Return whether this number of configurations should train on gangs, given the present slots."""
        able = any(self.able(name) for name, experiment in cluster.experiments.items() if experiment.running)
        if not self._below or not able or len(data.train) < 2:
            return False
        nodes = {node for each in data.train for node in each.nodes}
        return configurations < self._below * sum(slot.node in nodes for slot in cluster.slots.values())

    def able(self, experiment: str) -> bool:
        """Return whether an experiment's program can train on a gang; True while untested."""
        return self._able.get(experiment, True)

    def fits(self, job: JobView) -> bool:
        """Return whether a job may train on a gang; a job whose code failed on one continues with hops."""
        return job.id not in self._unfit and self.able(job.experiment)

    def failed(self, job: str) -> None:
        """Note that a job's code failed on a gang, although the trial run, with another configuration or less data, succeeded."""
        self._unfit.add(job)

    # -------------------------------------------------------------------------------------------------------- the trial

    @property
    def waits(self) -> bool:
        """Whether a trial run is pending. No gang starts until it has ended."""
        return self._trial is not None

    def tries(self, job: JobView) -> bool:
        """Start a trial run (mode PROFILE) of the job's program on a gang, if it is untested; return whether a trial is pending."""
        if job.experiment not in self._able:
            self._trial = job.id, job.experiment
        return self.waits

    def trying(self, job: str) -> bool:
        """Return whether a job's run is the trial run."""
        return self._trial is not None and self._trial[0] == job

    def told(self, stat: ApplicationStat) -> None:
        """Record the report of the trial run: a program that trains on several partitions reports their number."""
        if self._trial is not None:
            self._able[self._trial[1]] = "partitions" in stat.report.metrics

    def ended(self, run: RunEnd) -> None:
        """Record the end of the trial run."""
        if self._trial is None:
            return
        (_, experiment), self._trial = self._trial, None
        self._lost[experiment] += run.reason is RunEndReason.LOST
        if run.reason is RunEndReason.FAILED or self._lost[experiment] >= LOSSES:
            self._able.setdefault(experiment, False)

    def forget(self, job: str) -> None:
        """Cancel the trial run of a job that did not start or will not run again."""
        if self.trying(job):
            self._trial = None


def visits(needs: Sequence[Need], holders: Options, idle: Collection[str], share: int) -> Iterator[Visit]:
    """Yield the visits that start now: jobs in turn, each on as many slots as its remaining partitions can use.

    A job waits until all slots that it can use at the same time are idle, and later jobs wait with it. Jobs start
    together if they use different slots; replicas are chosen to make that possible.

    Args:
        needs: The waiting jobs, in turn.
        holders: The slots that hold each partition, idle or not.
        idle: The usable idle slots.
        share: The total number of slots that may be used.
    """
    free = {name: [slot for slot in slots if slot in idle] for name, slots in holders.items()}
    placed: dict[str, _Unit] = {}
    for need in needs:
        most = min(need.most, share)
        fits, now = len(_placed(need, holders, most, {})), _placed(need, free, most, placed)
        if len(now) - len(placed) < fits:
            break
        placed = now
    for need in needs:
        ranks = {name: slot for slot, (job, name) in placed.items() if job == need.job}
        names = tuple(name for name in need.partitions if name in ranks)
        if names:
            yield Visit(need.job, names, tuple(ranks[name] for name in names))


def _placed(need: Need, options: Options, most: int, others: Mapping[str, _Unit]) -> dict[str, _Unit]:
    """Assign slots to up to `most` partitions of a job, moving earlier assignments where needed (bipartite matching)."""
    found = dict(others)
    for name in need.partitions:
        if len(found) - len(others) < most:
            _place((need.job, name), options, found, set())
    return found


def _place(unit: _Unit, options: Options, placed: dict[str, _Unit], seen: set[str]) -> bool:
    """Assign a slot to a unit, moving other units to other holders (an augmenting path); return whether it worked."""
    for slot in options[unit[1]]:
        if slot not in seen:
            seen.add(slot)
            if slot not in placed or _place(placed[slot], options, placed, seen):
                placed[slot] = unit
                return True
    return False
