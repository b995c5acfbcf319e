"""Finds failed jobs and lost nodes in the changes of an experiment, and describes each in one line."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from hopyard._common import formatting
from hopyard.client.display.short_reason import error_of, failed_attempt
from hopyard.client.types import Job, JobState, Node, NodeState

_NAMED_JOBS: Final = 5
_MOST_LINES: Final = 1000
"""Number of lines that are kept if nothing takes them, as in the live view on a terminal."""


class Incidents:
    """The failures of jobs and the losses of nodes since the first state that was received.

    Attributes:
        lost_nodes: The nodes that were lost since then and have not returned, by id.
    """

    def __init__(self) -> None:
        self.lost_nodes: dict[str, Node] = {}
        self._lines: deque[str] = deque(maxlen=_MOST_LINES)
        self._nodes: dict[str, NodeState] = {}
        self._places: dict[str, frozenset[str]] = {}

    def take(self) -> list[str]:
        """Return the lines about incidents since the last call, oldest first."""
        lines = list(self._lines)
        self._lines.clear()
        return lines

    def note_job(self, before: Job | None, job: Job) -> None:
        """Note a new state of a job. `before` is the state before it; None: the job is new, and its earlier failures are not noted."""
        if job.slots:
            self._places[job.id] = frozenset(slot.rpartition("/")[0] for slot in job.slots)
        if before is None or before.state is JobState.FAILED:
            return
        if job.state is JobState.FAILED:
            error = error_of(job.reason_code, job.reason_args)
            self._lines.append(
                f"job {job.id} failed for good after {formatting.count(job.attempt, 'attempt')}: {error}"
            )
        elif job.failures > before.failures:
            failed = failed_attempt(job)
            self._lines.append(
                str(failed) if failed is not None else f"job {job.id} failed, attempt {job.attempt} trains"
            )

    def note_nodes(self, nodes: Iterable[Node], jobs: Iterable[Job]) -> None:
        """Note the present nodes of the cluster.

        Args:
            nodes: The nodes.
            jobs: The jobs of the experiment.
        """
        for node in nodes:
            before = self._nodes.get(node.id)
            self._nodes[node.id] = node.state
            if node.state is not NodeState.LOST:
                if self.lost_nodes.pop(node.id, None) is not None:
                    self._lines.append(f"node {node.id} is back")
            elif before is not None and before is not NodeState.LOST:
                self.lost_nodes[node.id] = node
                self._lines.append(self._loss(node, jobs))

    def _loss(self, node: Node, jobs: Iterable[Job]) -> str:
        """Return a line about a lost node: why it is lost, and what the jobs do that trained there."""
        hit = [job for job in jobs if not job.state.ended and node.id in self._places.get(job.id, ())]
        parts = [_consequence(job, node.id) for job in hit[:_NAMED_JOBS]]
        if len(hit) > _NAMED_JOBS:
            parts.append(f"{len(hit) - _NAMED_JOBS} more jobs lost their runs")
        reason = f" ({node.reason})" if node.reason else ""
        return f"node {node.id} lost{reason}: {', '.join(parts) or 'no job of this experiment trained there'}"


def _consequence(job: Job, node: str) -> str:
    saved = max(job.snapshots, key=lambda snapshot: snapshot.position, default=None)
    if saved is not None and not saved.stored and set(saved.nodes) <= {node}:
        return f"job {job.id} waits for it, because only it has the snapshot at {saved.position}"
    if saved is not None:
        return f"job {job.id} restarts from {saved.position}"
    return f"job {job.id} restarts from {job.fork_position or 'the beginning'}"
