"""Deferred uploads: snapshots that stay on the node that took them until the scheduler orders the upload.

With `ship_every` other than 1 the next run fetches a snapshot from the node that took it. The store gets the snapshots at multiples
of `ship_every` (0: none), those retained of a job that has ended, those of an experiment that pauses or ends, and those that are only
on a drained node. Until then the loss of one node costs a job at most its newest snapshot: while that is on one node only, the one
before it is kept elsewhere.
"""

from __future__ import annotations

from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.stream import Stream


def taken(stream: Stream, job: Job, position: int, node: str) -> None:
    """Orders the upload of a new deferred snapshot if the store must have it: at multiples of `ship_every`, or if its node drains."""
    every = job.terms.ship_every
    leaving = any(stream.slots[slot].node == node for slot in stream.draining)
    if leaving or (every and position % every == 0):
        stream.order_uploads([one for one in stream.snapshots.deferred if one == (job.id, position)])


def wound_up(stream: Stream, experiment: Experiment) -> None:
    """Orders the upload of the retained snapshots of an experiment that has left its slots."""
    stream.order_uploads(stream.snapshots.wanted(lambda name: stream.jobs[name].experiment is experiment))


def node_leaves(stream: Stream, node: str) -> None:
    """Orders the upload of the snapshots that only a drained node has."""
    entries = ((one, stream.snapshots.get(*one)) for one in stream.snapshots.deferred)
    stream.order_uploads([one for one, entry in entries if entry is not None and entry.nodes == {node}])
