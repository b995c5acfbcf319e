"""Uploads that the scheduler orders: the run that took the snapshot is forgotten on its node, or defers uploads (`deferred_uploads`).

An agent that is killed between a snapshot and its arrival in the store has the bytes on its disk and nobody who ships them. When
it is back it gets an order for each (`NodeBack.ship`), and again after every hello until it has answered.
"""

from __future__ import annotations

from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.effects import AcknowledgeShipment, ForgetSnapshot, Noted
from hopyard_engine.core.events import SnapshotShipped
from hopyard_engine.core.handlers import run_messages
from hopyard_engine.core.state.stream import Stream


def is_awaited(stream: Stream, event: SnapshotShipped) -> bool:
    """Whether an answer is the one that its snapshot waits for.

    Any other is acknowledged, and what it stored is deleted if nobody needs it.
    """
    if stream.snapshots.of_order((event.job, event.position), event.node, event.order) is not None:
        return True
    if not event.error and not stream.snapshots.holds(event.sha256):
        stream.emit(ForgetSnapshot(stream.id, event.sha256, (), True))
    stream.emit(AcknowledgeShipment(event.node, stream.id, event.order))
    return False


def take(stream: Stream, event: SnapshotShipped) -> None:
    """A snapshot is in the store, or will stay on its node."""
    entry = stream.snapshots.of_order((event.job, event.position), event.node, event.order)
    assert entry is not None
    stream.emit(AcknowledgeShipment(event.node, stream.id, event.order))
    job = stream.jobs[event.job]
    stream.snapshots.shipped(entry, event.error)
    if event.error:
        reason = Reason.of(ReasonCode.SNAPSHOT_NOT_STORED, position=event.position, error=event.error)
        stream.emit(Noted(stream.id, job.id, reason))
        stream.changed(job)
    else:
        run_messages.survives(stream, job, event.position)
