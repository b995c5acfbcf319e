"""Uploads ordered by the scheduler, for snapshots that no run uploads.

There are two cases: the uploads of the run are deferred (`deferred_uploads`), or the agent failed after it took a snapshot and before
it uploaded it. A restarted agent gets an order for each such snapshot on its disk (`NodeBack.ship`). The order is repeated in each
session until the agent answers it.
"""

from __future__ import annotations

from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.effects import AcknowledgeShipment, ForgetSnapshot, Noted
from hopyard_engine.core.events import SnapshotShipped
from hopyard_engine.core.handlers import run_messages
from hopyard_engine.core.state.stream import Stream


def is_awaited(stream: Stream, event: SnapshotShipped) -> bool:
    """Return whether an agent's answer belongs to the current upload order of its snapshot.

    If not, this function acknowledges the answer, and deletes the uploaded contents from the store if no snapshot has them.
    """
    if stream.snapshots.of_order((event.job, event.position), event.node, event.order) is not None:
        return True
    if not event.error and not stream.snapshots.holds(event.sha256):
        stream.emit(ForgetSnapshot(stream.id, event.sha256, (), True))
    stream.emit(AcknowledgeShipment(event.node, stream.id, event.order))
    return False


def take(stream: Stream, event: SnapshotShipped) -> None:
    """Record the answer to an upload order: the snapshot is in the store, or, after an error, only on nodes.

    The answer must belong to the current upload order of its snapshot (`is_awaited`).
    """
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
        stream.hops.shipped(entry.info.size)
        run_messages.survives(stream, job)
