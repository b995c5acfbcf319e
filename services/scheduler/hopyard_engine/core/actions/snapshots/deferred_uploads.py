"""Deferred uploads: a snapshot stays on the node that took it until the scheduler orders its upload.

Uploads are deferred if `Settings.ship_every` is not 1. Then the next run fetches a snapshot from the node that took it. The scheduler
orders the upload of

- the snapshots at positions that are multiples of `ship_every` (0: none);
- the retained snapshots of a job that has ended;
- the snapshots of an experiment that pauses or ends;
- the snapshots that are only on nodes which are drained or whose agents are stopping.

The loss of one node costs a job at most its newest snapshot: while the newest one is on one node only, an older one is kept in the
store or on another node (`snapshot_entries.reserve`).
"""

from __future__ import annotations

from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.stream import Stream


def taken(stream: Stream, job: Job, position: int, node: str) -> None:
    """Order the upload of a new deferred snapshot if it is at a multiple of `ship_every`, or if its node drains.

    Args:
        stream: The stream of the job.
        job: The job.
        position: Position of the snapshot.
        node: The node that took it.
    """
    every = job.terms.ship_every
    leaving = any(stream.slots[slot].node == node for slot in stream.draining)
    if leaving or (every and position % every == 0):
        stream.order_uploads([one for one in stream.snapshots.deferred if one == (job.id, position)])


def wound_up(stream: Stream, experiment: Experiment) -> None:
    """Order the upload of the deferred snapshots that the jobs of an experiment retain, after its last run has left its slots."""
    stream.order_uploads(stream.snapshots.wanted(lambda name: stream.jobs[name].experiment is experiment))


def node_leaves(stream: Stream, node: str, others: tuple[str, ...] = ()) -> None:
    """Order the upload of the snapshots on a drained or stopping node that no other node will have.

    An upload that was given up before is tried once more.

    Args:
        stream: The stream.
        node: The node.
        others: Other nodes that are drained or stopping. Copies on them do not count.
    """
    stream.order_uploads(stream.snapshots.endangered(node, others))
