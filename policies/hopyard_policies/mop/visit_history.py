"""The history of each job: the partitions that it was trained on, by position, and the partitions that it was evaluated on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hopyard.policy import JobView, Partition, RunEnd


@dataclass(frozen=True, slots=True)
class RunningUnit:
    """A running training unit of one job, or several units of the job that run at the same time on a gang.

    Attributes:
        position: The job's position at the start of the run.
        partitions: The names of the partitions, one for each unit.
        slots: The slot of each partition; the first is that of rank 0.
        began: The start time, in seconds (`Cluster.now`).
    """

    position: int
    partitions: tuple[str, ...]
    slots: tuple[str, ...]
    began: float


class VisitHistory:
    """Records what each job was trained on, by the position at the start of the run, what it was evaluated on, and what is running.

    A run trains one unit or, on a gang, several at the same time, which form one entry of the history. Everything
    follows from the commands of the policy and the ends of runs. When a job returns to an earlier snapshot, nothing has to
    be deleted: only entries before its position are read as its past, and later entries tell which partitions it trained
    there the first time.

    Attributes:
        running: The running unit or units of each job, by job id.
    """

    def __init__(self) -> None:
        self.running: dict[str, RunningUnit] = {}
        self._trained: dict[str, dict[int, tuple[str, ...]]] = {}
        self._evaluated: dict[str, dict[int, set[str]]] = {}

    def start(self, job: str, unit: RunningUnit) -> None:
        """Record that a job, given by its id, has started a unit, or several units on a gang."""
        self.running[job] = unit

    def end(self, run: RunEnd) -> RunningUnit | None:
        """Record the end of a training run.

        Returns:
            The unit or units of the run if the job's position advanced; None: the training was lost, or the run is unknown.
        """
        unit = self.running.pop(run.job, None)
        if unit is None:
            return None
        trained = self._trained.setdefault(run.job, {})
        visited = unit.partitions[: run.resume_position - unit.position]  # A program may have saved in between.
        if run.resume_position <= unit.position:
            trained.setdefault(unit.position, unit.partitions)  # Available again if its node returns.
            return None
        if trained.get(unit.position) != visited:
            # The job trained other partitions here than before its return: later entries, and evaluations at later
            # positions, belong to another model.
            self._trained[run.job] = trained = {at: name for at, name in trained.items() if at < unit.position}
            evaluated = self._evaluated.pop(run.job, {})
            self._evaluated[run.job] = {at: parts for at, parts in evaluated.items() if at <= unit.position}
        trained[unit.position] = visited
        return unit

    def forget(self, job: str) -> None:
        """Delete the running unit of a job, because the unit did not start or the job will not run again. Its history remains."""
        self.running.pop(job, None)

    def evaluate(self, job: str, position: int, part: str) -> None:
        """Record that a job was evaluated on the partition `part` of the evaluation data at a position."""
        self._evaluated.setdefault(job, {}).setdefault(position, set()).add(part)

    def evaluated(self, job: JobView) -> Collection[str]:
        """Return the names of the evaluation partitions on which a job was evaluated at its present position."""
        return self._evaluated.get(job.id, {}).get(job.position, ())

    def visited(self, job: JobView, epoch: int) -> set[str]:
        """Return the names of the partitions that a job was trained on since its epoch began, at position `epoch`."""
        trained = self._trained.get(job.id, {})
        return {name for position in range(epoch, job.position) for name in trained.get(position, ())}

    def again(self, job: JobView) -> tuple[str, ...]:
        """Return the partitions that a job trained at its present position before it returned to an earlier snapshot.

        The job trains the same partitions again. Several names: they are trained at the same time on a gang. Empty: the job has not
        trained at this position yet.
        """
        return self._trained.get(job.id, {}).get(job.position, ()) if job.position < job.high_water else ()

    def order(self, job: str) -> Sequence[str]:
        """Return the names of the partitions that a job was trained on, ordered by position; empty: none.

        A repeated training uses this order.
        """
        trained = self._trained.get(job, {})
        return [name for position in sorted(trained) for name in trained[position]]


def size(partition: Partition, partitions: Sequence[Partition]) -> float:
    """Return the size of a partition for planning: its examples, or its bytes if some partitions have no number of examples.

    Args:
        partition: The partition.
        partitions: All partitions of the same data, which decide between examples and bytes.
    """
    if all(each.examples for each in partitions):
        return float(partition.examples or 1)
    return float(max(partition.bytes, 1))
