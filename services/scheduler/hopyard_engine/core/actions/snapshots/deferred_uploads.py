"""Snapshots that move from node to node, and whose upload to the store is deferred.

With `ship_every` other than 1 a snapshot stays on the node that took it, and the next run gets it from there. The store gets those at
multiples of `ship_every` (0: none), what is left of a job that has ended, all of an experiment that pauses or ends, and what lies on a
node that is drained. Until then the loss of one node costs a job its newest snapshot at most: while that lies on one node only,
the one before it is kept where it came from.
"""

from __future__ import annotations

from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.stream import Stream


def taken(stream: Stream, job: Job, position: int, node: str) -> None:
    """A run has taken a snapshot that nobody ships unasked: ask now if the store is to have it."""
    every = job.terms.ship_every
    leaving = any(stream.slots[slot].node == node for slot in stream.draining)
    if leaving or (every and position % every == 0):
        stream.order_uploads([one for one in stream.snapshots.deferred if one == (job.id, position)])


def wound_up(stream: Stream, experiment: Experiment) -> None:
    """An experiment has left its slots: so is all that it keeps."""
    stream.order_uploads(stream.snapshots.wanted(lambda name: stream.jobs[name].experiment is experiment))


def node_leaves(stream: Stream, node: str) -> None:
    """A node is drained: so is what it alone has."""
    entries = ((one, stream.snapshots.get(*one)) for one in stream.snapshots.deferred)
    stream.order_uploads([one for one, entry in entries if entry is not None and entry.nodes == {node}])
