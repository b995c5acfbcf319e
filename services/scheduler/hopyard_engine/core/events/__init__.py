"""Events of the core. Each event carries its time, because the core reads no clock.

`at` is always the time of the event in seconds since the Unix epoch, by the scheduler's clock. Snapshots are identified by the SHA-256
hashes of their contents.

Cluster events concern nodes and slots. Stream events carry the id of a stream and are recorded in its journal. The cluster state also
creates stream events (`SlotGranted`, `SlotRecalled`, `NodeLost`, `NodeBack`, `NodeDraining`, `ShareSet`). They are recorded in the
journal of the stream, so that each stream can be replayed without the others.
"""

from __future__ import annotations

from hopyard_engine.core.events.answers import Answered, PolicyAnswered, PolicyFailed, PolicyProcess, TimerElapsed
from hopyard_engine.core.events.cluster import (
    DeletionCompleted,
    DrainExpired,
    NodeDrained,
    NodeEvicted,
    NodeExpired,
    NodeForgotten,
    NodeJoined,
    NodeLeaving,
    NodeUndrained,
    StoreQuotaSet,
    StreamDeleted,
)
from hopyard_engine.core.events.requests import (
    Imported,
    JobHeld,
    JobOperated,
    JobsRetried,
    Operated,
    Requested,
    SlotReserved,
    Updated,
)
from hopyard_engine.core.events.resources import (
    CopiesEvicted,
    DataChanged,
    ExperimentJoined,
    NodeBack,
    NodeDraining,
    NodeLost,
    ShareSet,
    SlotGranted,
    SlotRecalled,
    SnapshotsGivenUp,
    StreamCreated,
)
from hopyard_engine.core.events.runs import (
    Amended,
    Ended,
    Reports,
    RunBody,
    RunMessage,
    SnapshotShipped,
    SnapshotStored,
    SnapshotTaken,
    Started,
)

__all__ = [
    "Amended",
    "Answered",
    "ClusterEvent",
    "CopiesEvicted",
    "DataChanged",
    "DeletionCompleted",
    "DrainExpired",
    "Ended",
    "Event",
    "ExperimentJoined",
    "Imported",
    "JobHeld",
    "JobOperated",
    "JobsRetried",
    "NodeBack",
    "NodeDrained",
    "NodeDraining",
    "NodeEvicted",
    "NodeExpired",
    "NodeForgotten",
    "NodeJoined",
    "NodeLeaving",
    "NodeLost",
    "NodeUndrained",
    "Operated",
    "PolicyAnswered",
    "PolicyFailed",
    "PolicyProcess",
    "Reports",
    "Requested",
    "RunBody",
    "RunMessage",
    "ShareSet",
    "SlotGranted",
    "SlotRecalled",
    "SlotReserved",
    "SnapshotShipped",
    "SnapshotStored",
    "SnapshotTaken",
    "SnapshotsGivenUp",
    "Started",
    "StoreQuotaSet",
    "StreamCreated",
    "StreamDeleted",
    "StreamEvent",
    "TimerElapsed",
    "Updated",
]

ClusterEvent = (
    NodeJoined
    | NodeExpired
    | NodeDrained
    | NodeUndrained
    | DrainExpired
    | NodeLeaving
    | NodeForgotten
    | NodeEvicted
    | StoreQuotaSet
    | StreamDeleted
    | DeletionCompleted
)

StreamEvent = (
    StreamCreated
    | ExperimentJoined
    | Imported
    | SlotGranted
    | SlotRecalled
    | NodeLost
    | NodeBack
    | NodeDraining
    | CopiesEvicted
    | SnapshotsGivenUp
    | DataChanged
    | ShareSet
    | RunMessage
    | SnapshotShipped
    | PolicyAnswered
    | PolicyFailed
    | PolicyProcess
    | Answered
    | TimerElapsed
    | Requested
    | Operated
    | JobOperated
    | JobHeld
    | JobsRetried
    | SlotReserved
    | Updated
)

Event = ClusterEvent | StreamEvent
