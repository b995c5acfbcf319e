"""Uploads ordered by the scheduler, for snapshots that their run no longer uploads.

The uploads of such a run are deferred (`deferred_uploads`), or its agent was killed between taking a snapshot and uploading it. A
restarted agent gets an order for each such snapshot on its disk (`NodeBack.ship`), repeated in each session until it answers.
"""

from __future__ import annotations

from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.effects import AcknowledgeShipment, ForgetSnapshot, Noted
from hopyard_engine.core.events import SnapshotShipped
from hopyard_engine.core.handlers import run_messages
from hopyard_engine.core.state.stream import Stream


def is_awaited(stream: Stream, event: SnapshotShipped) -> bool:
    """Returns whether an answer belongs to the current upload order of its snapshot.

    Any other answer is acknowledged, and the contents that it stored are deleted if nobody needs them.
    """
    if stream.snapshots.of_order((event.job, event.position), event.node, event.order) is not None:
        return True
    if not event.error and not stream.snapshots.holds(event.sha256):
        stream.emit(ForgetSnapshot(stream.id, event.sha256, (), True))
    stream.emit(AcknowledgeShipment(event.node, stream.id, event.order))
    return False


def take(stream: Stream, event: SnapshotShipped) -> None:
    """Records the answer to an upload order: the snapshot is in the store, or stays on its node after an error."""
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
