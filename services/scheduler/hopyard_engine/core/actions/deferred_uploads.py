"""Snapshots that hop from node to node: held back from the store until it is to have them, and counted as they move.

With `ship_every` other than 1 a snapshot stays on the node that took it, and the next run gets it from there. The store gets those at
multiples of `ship_every` (0: none), what is left of a job that has ended, all of an experiment that pauses or ends, and what lies on a
node that is drained. Until then the loss of one node costs a job its newest snapshot at most: while that lies on one node only,
the one before it is kept where it came from.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hopyard_engine.core.effects import OrdersGiven
from hopyard_engine.core.state.snapshot_entries import SnapshotId

if TYPE_CHECKING:
    from hopyard_engine.core.state.entities import Job
    from hopyard_engine.core.state.experiment import Experiment
    from hopyard_engine.core.state.stream import Stream


@dataclass(slots=True)
class HopCounts:
    """How a stream's snapshots moved: to runs from other agents (`direct`) or from the store (`fetched`), and to the store."""

    direct: int = 0
    direct_bytes: int = 0
    fetched: int = 0
    fetched_bytes: int = 0
    stored: int = 0
    stored_bytes: int = 0

    def arrived(self, size: int, *, from_store: bool) -> None:
        """A run's agent got so many bytes to start it; 0: it had them."""
        if size and from_store:
            self.fetched, self.fetched_bytes = self.fetched + 1, self.fetched_bytes + size
        elif size:
            self.direct, self.direct_bytes = self.direct + 1, self.direct_bytes + size

    def shipped(self, size: int) -> None:
        """The store got a snapshot."""
        self.stored, self.stored_bytes = self.stored + 1, self.stored_bytes + size


def taken(stream: Stream, job: Job, position: int, node: str) -> None:
    """A run has taken a snapshot that nobody ships unasked: ask now if the store is to have it."""
    every = job.terms.ship_every
    leaving = any(stream.machines[machine].node == node for machine in stream.draining)
    if leaving or (every and position % every == 0):
        _order(stream, [one for one in stream.snapshots.held_back if one == (job.id, position)])


def over(stream: Stream, job: Job) -> None:
    """A job has ended: what is kept of it is to outlive the nodes."""
    _order(stream, stream.snapshots.wanted(lambda name: name == job.id))


def wound_up(stream: Stream, member: Experiment) -> None:
    """An experiment has left its machines: so is all that it keeps."""
    _order(stream, stream.snapshots.wanted(lambda name: stream.jobs[name].member is member))


def node_leaves(stream: Stream, node: str) -> None:
    """A node is drained: so is what it alone has."""
    entries = ((one, stream.snapshots.get(*one)) for one in stream.snapshots.held_back)
    _order(stream, [one for one, entry in entries if entry is not None and entry.nodes == {node}])


def _order(stream: Stream, snapshots: Iterable[SnapshotId]) -> None:
    nodes = [stream.snapshots.order_held_back(snapshot) for snapshot in snapshots]
    for node in dict.fromkeys(nodes):
        stream.emit(OrdersGiven(node))
