"""Which partitions a job has visited: in which order it trained on them, position by position, and where it was evaluated."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hopyard.policy import JobView, Partition, RunEnd


@dataclass(frozen=True, slots=True)
class RunningUnit:
    """A training unit under way, or several at once, on a gang.

    Attributes:
        position: Where the job was when it began.
        partitions: What it is trained on, each a unit.
        machines: Where, as many; the first is rank 0's.
        began: When, seconds since the epoch.
    """

    position: int
    partitions: tuple[str, ...]
    machines: tuple[str, ...]
    began: float


class VisitHistory:
    """What each job was trained on, by the position at which the run began, what it was evaluated on, and what is under way.

    A run trains one unit; or, on a gang, several at once, which lie in the history as one step.

    All of it follows from what the policy started and from the ends of runs. A job that goes back to an earlier snapshot needs
    nothing here: only what lies before its position counts, and what lies behind tells what it trained there the first time.
    """

    def __init__(self) -> None:
        self.running: dict[str, RunningUnit] = {}
        self._trained: dict[str, dict[int, tuple[str, ...]]] = {}
        self._evaluated: dict[str, dict[int, set[str]]] = {}

    def start(self, job: str, unit: RunningUnit) -> None:
        """A unit begins."""
        self.running[job] = unit

    def end(self, run: RunEnd) -> RunningUnit | None:
        """A training run is over. Answers its unit if that was trained and its result kept."""
        unit = self.running.pop(run.job, None)
        if unit is None:
            return None
        trained = self._trained.setdefault(run.job, {})
        visited = unit.partitions[: run.resume_position - unit.position]  # A program may have saved in between.
        if run.resume_position <= unit.position:
            trained.setdefault(unit.position, unit.partitions)  # Its snapshot may be found again, with its node.
            return None
        if trained.get(unit.position) != visited:
            # Thrown back, it trained otherwise than the first time: what came behind that is no guide any more, and what was
            # evaluated there was another model.
            self._trained[run.job] = trained = {at: name for at, name in trained.items() if at < unit.position}
            evaluated = self._evaluated.pop(run.job, {})
            self._evaluated[run.job] = {at: parts for at, parts in evaluated.items() if at <= unit.position}
        trained[unit.position] = visited
        return unit

    def forget(self, job: str) -> None:
        """The job will never run again, or its unit never began."""
        self.running.pop(job, None)

    def evaluate(self, job: str, position: int, part: str) -> None:
        """A job was evaluated on a part at a position."""
        self._evaluated.setdefault(job, {}).setdefault(position, set()).add(part)

    def evaluated(self, job: JobView) -> Collection[str]:
        """The parts on which a job was evaluated as it stands now."""
        return self._evaluated.get(job.id, {}).get(job.position, ())

    def visited(self, job: JobView, epoch: int) -> set[str]:
        """What a job has visited since its present epoch began, at a position."""
        trained = self._trained.get(job.id, {})
        return {name for position in range(epoch, job.position) for name in trained.get(position, ())}

    def again(self, job: JobView) -> tuple[str, ...]:
        """What a job was trained on at its position before it was thrown back, so that it trains alike now; several: on a gang."""
        return self._trained.get(job.id, {}).get(job.position, ()) if job.position < job.high_water else ()

    def order(self, job: str) -> Sequence[str]:
        """The partitions that a job was trained on, in order: what its weights can be trained again with."""
        trained = self._trained.get(job, {})
        return [name for position in sorted(trained) for name in trained[position]]


def size(partition: Partition, partitions: Sequence[Partition]) -> float:
    """How large a partition is for planning: by its examples, or its bytes if some have no number of examples."""
    if all(each.examples for each in partitions):
        return float(partition.examples or 1)
    return float(max(partition.bytes, 1))
