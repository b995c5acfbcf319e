"""The upload states of a snapshot: the transition table, and the function that applies it.

The state does not say which nodes have a copy (`SnapshotEntry.nodes`).
"""

from __future__ import annotations

import enum
from typing import Final, Protocol

from hopyard_engine.core.state_machines.transitions import TransitionTable
from hopyard_engine.core.types import SnapshotInfo


class SnapshotState(enum.Enum):
    """The upload state of a snapshot.

    LOCAL: nobody uploads it. UPLOADING: the run that took it uploads it. DEFERRED: its upload waits for an order of the scheduler.
    ORDERED: a node has the order to upload it. STORED: the store has it.
    """

    LOCAL = "LOCAL"
    UPLOADING = "UPLOADING"
    DEFERRED = "DEFERRED"
    ORDERED = "ORDERED"
    STORED = "STORED"


_S = SnapshotState

SNAPSHOT: Final = TransitionTable(
    "snapshot",
    _S.LOCAL,
    [
        ([_S.LOCAL, _S.DEFERRED, _S.ORDERED], _S.UPLOADING, "a run takes it, and uploads it by itself"),
        ([_S.LOCAL], _S.DEFERRED, "a run takes it, or a job gets a copy of it, and its upload is deferred"),
        ([_S.LOCAL, _S.DEFERRED], _S.ORDERED, "a node that has it gets the order to upload it"),
        ([_S.LOCAL, _S.UPLOADING, _S.DEFERRED, _S.ORDERED], _S.STORED, "it arrives in the store"),
        ([_S.UPLOADING, _S.ORDERED], _S.LOCAL, "the upload fails, or its node does not upload it any more"),
        ([_S.UPLOADING, _S.ORDERED], _S.DEFERRED, "its node does not upload it any more, and another node has a copy"),
        ([_S.STORED], _S.LOCAL, "a run finds that the store does not have it"),
    ],
)


class HasSnapshotState(Protocol):
    """The attributes of a snapshot that `change_snapshot` uses."""

    job: str
    info: SnapshotInfo
    state: SnapshotState


def change_snapshot(entry: HasSnapshotState, state: SnapshotState, why: str) -> None:
    """Change the upload state of a snapshot. Does nothing if the snapshot is already in that state.

    Args:
        entry: The snapshot.
        state: The new state.
        why: Reason of the change, for the error message.

    Raises:
        IllegalTransitionError: The table does not permit the change.
    """
    if entry.state is not state:
        SNAPSHOT.check(f"{entry.info.position} of job {entry.job}", entry.state, state, why)
        entry.state = state
