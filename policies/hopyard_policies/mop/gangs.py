"""Few configurations on partitioned data: data-parallel gangs, each rank on a partition of its own (Cerebro, section 5.7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hopyard.policy import ApplicationStat, Cluster, Data, JobView, RunEnd, RunEndReason

LOSSES: Final = 3
"""Trials of the program on a gang that may be lost; then models go on hopping."""

Options = Mapping[str, Collection[str]]
"""Partitions with the machines that hold them."""

_Unit = tuple[str, str]  # A job, and a partition that it is to visit.


@dataclass(frozen=True, slots=True)
class Visit:
    """Partitions that a job visits at once, and the machine of each, in the order of the ranks; one: a hop."""

    job: str
    partitions: tuple[str, ...]
    machines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Need:
    """What a job that waits has left in its epoch: partitions in order, of which `most` may be visited at once."""

    job: str
    partitions: Sequence[str]
    most: int


class Gangs:
    """Says when models train on gangs, and finds out whether their programs can.

    Args:
        below: With fewer configurations than this part of the machines that hold partitions, 0 .. 1; 0: never.
    """

    def __init__(self, below: float) -> None:
        self._below = below
        self._able: dict[str, bool] = {}  # By experiment: those of a group may have programs of their own.
        self._unfit: set[str] = set()
        self._trial: tuple[str, str] | None = None
        self._lost: Counter[str] = Counter()

    def wanted(self, cluster: Cluster, data: Data, configurations: int) -> bool:
        """Whether so many configurations train on gangs, on the machines that there are now."""
        able = any(self.able(name) for name, experiment in cluster.experiments.items() if experiment.running)
        if not self._below or not able or len(data.train) < 2:
            return False
        nodes = {node for each in data.train for node in each.nodes}
        return configurations < self._below * sum(machine.node in nodes for machine in cluster.machines.values())

    def able(self, experiment: str) -> bool:
        """Whether an experiment's program can train on a gang, as far as is known."""
        return self._able.get(experiment, True)

    def fits(self, job: JobView) -> bool:
        """Whether a job may train on a gang, as far as is known: one whose code failed there goes on by hops."""
        return job.id not in self._unfit and self.able(job.experiment)

    def failed(self, job: str) -> None:
        """A job's code failed on a gang. The trial was with another configuration, or with less of the data."""
        self._unfit.add(job)

    # -------------------------------------------------------------------------------------------------------- the trial

    @property
    def waits(self) -> bool:
        """Whether a program is being tried: until that is over nothing begins on gangs."""
        return self._trial is not None

    def tries(self, job: JobView) -> bool:
        """Whether a job's program is to be tried on a gang first, by a run with mode PROFILE; if so, that begins."""
        if job.experiment not in self._able:
            self._trial = job.id, job.experiment
        return self.waits

    def trying(self, job: str) -> bool:
        """Whether a job's run is the trial."""
        return self._trial is not None and self._trial[0] == job

    def told(self, stat: ApplicationStat) -> None:
        """The trial has reported: a program that trains on several partitions at once says on how many."""
        if self._trial is not None:
            self._able[self._trial[1]] = "partitions" in stat.report.metrics

    def ended(self, run: RunEnd) -> None:
        """The trial is over."""
        if self._trial is None:
            return
        (_, experiment), self._trial = self._trial, None
        self._lost[experiment] += run.reason is RunEndReason.LOST
        if run.reason is RunEndReason.FAILED or self._lost[experiment] >= LOSSES:
            self._able.setdefault(experiment, False)

    def forget(self, job: str) -> None:
        """What was to be started did not, or the job will never run again."""
        if self.trying(job):
            self._trial = None


def visits(needs: Sequence[Need], holders: Options, idle: Collection[str], share: int) -> Iterator[Visit]:
    """Who begins to visit what now: by turns, each job on as many machines at once as there are for what it has left.

    A job waits until all the machines are idle that it can use at once, and those behind it wait with it. Jobs begin together where
    they need not the same machines, and replicas are chosen so that they do not.

    Args:
        needs: The jobs that wait, those first whose turn it is.
        holders: The machines that hold each partition, whether idle or not.
        idle: Those that may be used now.
        share: How many machines may be used in all.
    """
    free = {name: [machine for machine in machines if machine in idle] for name, machines in holders.items()}
    placed: dict[str, _Unit] = {}
    for need in needs:
        most = min(need.most, share)
        fits, now = len(_placed(need, holders, most, {})), _placed(need, free, most, placed)
        if len(now) - len(placed) < fits:
            break
        placed = now
    for need in needs:
        ranks = {name: machine for machine, (job, name) in placed.items() if job == need.job}
        names = tuple(name for name in need.partitions if name in ranks)
        if names:
            yield Visit(need.job, names, tuple(ranks[name] for name in names))


def _placed(need: Need, options: Options, most: int, others: Mapping[str, _Unit]) -> dict[str, _Unit]:
    """Machines with who is to visit what there: others, and as many as can be of a job's partitions, up to `most`."""
    found = dict(others)
    for name in need.partitions:
        if len(found) - len(others) < most:
            _place((need.job, name), options, found, set())
    return found


def _place(unit: _Unit, options: Options, placed: dict[str, _Unit], seen: set[str]) -> bool:
    """Gives a unit a machine, moving those that have one to where they can be as well (an augmenting path); whether it got one."""
    for machine in options[unit[1]]:
        if machine not in seen:
            seen.add(machine)
            if machine not in placed or _place(placed[machine], options, placed, seen):
                placed[machine] = unit
                return True
    return False
