"""Data-parallel gangs for few configurations, with a partition for each rank (Cerebro, section 5.7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hopyard.policy import ApplicationStat, Cluster, Data, JobView, RunEnd, RunEndReason

LOSSES: Final = 3
"""Number of lost test runs on a gang after which the models of an experiment train one partition at a time."""

Options = Mapping[str, Collection[str]]
"""Maps the name of a partition to the ids of the slots whose nodes hold it."""

_Unit = tuple[str, str]  # A job and a partition that it should visit.


@dataclass(frozen=True, slots=True)
class Visit:
    """A run to start: one training unit on one slot or, on a gang, one unit for each of several partitions at the same time.

    Attributes:
        job: The id of the job.
        partitions: The names of the partitions, one for each rank.
        slots: The ids of the slots, in the order of `partitions`.
    """

    job: str
    partitions: tuple[str, ...]
    slots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Need:
    """The remaining work of a waiting job in its epoch.

    Attributes:
        job: The id of the job.
        partitions: The names of the partitions on which the job must still be trained, in order of preference.
        most: The maximum number of partitions on which it may be trained at the same time.
    """

    job: str
    partitions: Sequence[str]
    most: int


class Gangs:
    """Decides when models train on gangs, and finds out by a test run whether the program of an experiment can.

    The test run is the first gang of the experiment. It runs in mode PROFILE, and its training is discarded.

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
        """Return whether jobs should train on gangs, given the present slots.

        They should if `configurations` is less than the fraction `below` of the slots on nodes with training partitions, there are
        at least two partitions, and some running experiment's program can train on a gang or is untested.

        Args:
            cluster: The view with the slots.
            data: The partitions and their nodes.
            configurations: The number of configurations that train at a time.
        """
        able = any(self.able(name) for name, experiment in cluster.experiments.items() if experiment.running)
        if not self._below or not able or len(data.train) < 2:
            return False
        nodes = {node for each in data.train for node in each.nodes}
        return configurations < self._below * sum(slot.node in nodes for slot in cluster.slots.values())

    def able(self, experiment: str) -> bool:
        """Return whether an experiment's program can train on a gang, by its test run; True while it is untested."""
        return self._able.get(experiment, True)

    def fits(self, job: JobView) -> bool:
        """Return whether a job may train on a gang: its program can, and its own code has not failed on one."""
        return job.id not in self._unfit and self.able(job.experiment)

    def failed(self, job: str) -> None:
        """Record that a job's code failed on a gang; from now on the job trains on one slot at a time.

        This can happen although the test run succeeded, because that had another configuration or less data.
        """
        self._unfit.add(job)

    # -------------------------------------------------------------------------------------------------------- test runs

    @property
    def waits(self) -> bool:
        """Whether a test run (the first run of a program on a gang) is pending in any experiment. No gang starts before its end."""
        return self._trial is not None

    def tries(self, job: JobView) -> bool:
        """Make the job's next run the test run of its experiment's program, if the program is untested.

        A test run finds out whether a program can train on a gang; its training is discarded. Call this only while no test run is
        pending (`waits`).

        Returns:
            True if the job's run is a test run, which the caller starts in mode PROFILE; False if the program was tested.
        """
        if job.experiment not in self._able:
            self._trial = job.id, job.experiment
        return self.waits

    def trying(self, job: str) -> bool:
        """Return whether the pending test run (the first run of a program on a gang) is a run of this job; False if none is pending."""
        return self._trial is not None and self._trial[0] == job

    def told(self, stat: ApplicationStat) -> None:
        """Record whether the program can train on a gang, by a report of the pending test run; without a pending one, do nothing.

        The program can if and only if the report has the metric `partitions`; its value does not matter.

        Args:
            stat: The report of the test run.
        """
        if self._trial is not None:
            self._able[self._trial[1]] = "partitions" in stat.report.metrics

    def ended(self, run: RunEnd) -> None:
        """Record the end of the pending test run; without a pending one, do nothing.

        A program that failed before a report, or whose test runs were lost `LOSSES` times, trains on no gang.
        """
        if self._trial is None:
            return
        (_, experiment), self._trial = self._trial, None
        self._lost[experiment] += run.reason is RunEndReason.LOST
        if run.reason is RunEndReason.FAILED or self._lost[experiment] >= LOSSES:
            self._able.setdefault(experiment, False)

    def forget(self, job: str) -> None:
        """Cancel the pending test run (the first run of a program on a gang) if it is a run of this job.

        Call it when the job did not start or will not run again. If the test run has not reported yet, the program remains untested,
        and its next gang is a test run.
        """
        if self.trying(job):
            self._trial = None


def visits(needs: Sequence[Need], holders: Options, idle: Collection[str], share: int) -> Iterator[Visit]:
    """Yield the runs that start now: jobs in the given order, each on as many slots as its remaining partitions can use.

    A job waits until all slots that it can use at the same time are idle, and all later jobs wait with it. Jobs start
    together if they use different slots; replicas are chosen to make that possible.

    Args:
        needs: The waiting jobs, in the order in which they start.
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
    """Assign slots to up to `most` partitions of a job, moving earlier assignments where needed (bipartite matching).

    Args:
        need: The job and its remaining partitions.
        options: The slots that may be assigned to each partition.
        most: The maximum number of partitions that receive a slot.
        others: The earlier assignments: by slot, the job and the partition.

    Returns:
        The earlier assignments, perhaps on other slots, and those of the job.
    """
    found = dict(others)
    for name in need.partitions:
        if len(found) - len(others) < most:
            _place((need.job, name), options, found, set())
    return found


def _place(unit: _Unit, options: Options, placed: dict[str, _Unit], seen: set[str]) -> bool:
    """Assign a slot to a unit, moving other units to other slots where needed (an augmenting path).

    Args:
        unit: The job and the partition.
        options: The slots that may be assigned to each partition.
        placed: The assignments by slot; updated.
        seen: Slots that this search has already tried; updated.

    Returns:
        True if the unit received a slot.
    """
    for slot in options[unit[1]]:
        if slot not in seen:
            seen.add(slot)
            if slot not in placed or _place(placed[slot], options, placed, seen):
                placed[slot] = unit
                return True
    return False
