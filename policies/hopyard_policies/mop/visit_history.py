"""The partitions that each job has visited, in order and by position, and the partitions of its evaluations."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hopyard.policy import JobView, Partition, RunEnd


@dataclass(frozen=True, slots=True)
class RunningUnit:
    """A running training unit, or several at the same time on a gang.

    Attributes:
        position: The job's position at the start.
        partitions: The partitions, one for each unit.
        slots: The slot of each partition; the first is that of rank 0.
        began: The start time in seconds since the epoch.
    """

    position: int
    partitions: tuple[str, ...]
    slots: tuple[str, ...]
    began: float


class VisitHistory:
    """What each job was trained on, by position at the start of the run, what it was evaluated on, and what is running.

    A run trains one unit or, on a gang, several at the same time, which form one step of the history. Everything
    follows from the commands of the policy and the ends of runs. A job that returns to an earlier snapshot needs no
    special handling: only entries before its position count, and later entries show what it trained the first time.
    """

    def __init__(self) -> None:
        self.running: dict[str, RunningUnit] = {}
        self._trained: dict[str, dict[int, tuple[str, ...]]] = {}
        self._evaluated: dict[str, dict[int, set[str]]] = {}

    def start(self, job: str, unit: RunningUnit) -> None:
        """Record the start of a unit."""
        self.running[job] = unit

    def end(self, run: RunEnd) -> RunningUnit | None:
        """Record the end of a training run; return its unit if the training was kept."""
        unit = self.running.pop(run.job, None)
        if unit is None:
            return None
        trained = self._trained.setdefault(run.job, {})
        visited = unit.partitions[: run.resume_position - unit.position]  # A program may have saved in between.
        if run.resume_position <= unit.position:
            trained.setdefault(unit.position, unit.partitions)  # Its snapshot may return with its node.
            return None
        if trained.get(unit.position) != visited:
            # It trained differently than the first time: later entries are no guide any more, and what was evaluated
            # there was another model.
            self._trained[run.job] = trained = {at: name for at, name in trained.items() if at < unit.position}
            evaluated = self._evaluated.pop(run.job, {})
            self._evaluated[run.job] = {at: parts for at, parts in evaluated.items() if at <= unit.position}
        trained[unit.position] = visited
        return unit

    def forget(self, job: str) -> None:
        """Drop the running unit of a job that will not run again or whose unit did not start."""
        self.running.pop(job, None)

    def evaluate(self, job: str, position: int, part: str) -> None:
        """Record an evaluation of a job on a part at a position."""
        self._evaluated.setdefault(job, {}).setdefault(position, set()).add(part)

    def evaluated(self, job: JobView) -> Collection[str]:
        """Return the parts on which a job was evaluated at its present position."""
        return self._evaluated.get(job.id, {}).get(job.position, ())

    def visited(self, job: JobView, epoch: int) -> set[str]:
        """Return the partitions that a job has visited since its epoch began at a position."""
        trained = self._trained.get(job.id, {})
        return {name for position in range(epoch, job.position) for name in trained.get(position, ())}

    def again(self, job: JobView) -> tuple[str, ...]:
        """Return what a job trained at this position before it was set back, to train the same again; several: on a gang."""
        return self._trained.get(job.id, {}).get(job.position, ()) if job.position < job.high_water else ()

    def order(self, job: str) -> Sequence[str]:
        """Return the partitions that a job was trained on, in order, to repeat its training."""
        trained = self._trained.get(job, {})
        return [name for position in sorted(trained) for name in trained[position]]


def size(partition: Partition, partitions: Sequence[Partition]) -> float:
    """Return the size of a partition for planning: its examples, or its bytes if some partitions have no number of examples."""
    if all(each.examples for each in partitions):
        return float(partition.examples or 1)
    return float(max(partition.bytes, 1))
