"""Events of the cluster: nodes, their slots and storage, and deleted streams."""

from __future__ import annotations

from dataclasses import dataclass

from hopyard.policy.vocabulary import ExperimentId, RunKey, StreamId
from hopyard_engine.core.types import SlotSpec


@dataclass(frozen=True, slots=True)
class NodeJoined:
    """An agent opened a session and announced what its node has.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        node: Name of the node.
        incarnation: Identifies the agent's process: it changes when the agent restarts.
        slots: All slots of the node.
        runs: Channels of the run processes that the agent still has.
        snapshots: Hashes of the snapshots on its disk.
        discarded: Runs that the agent discarded, because the cluster was restored from a backup while the agent kept running.
    """

    at: float
    node: str
    incarnation: str
    slots: tuple[SlotSpec, ...]
    runs: tuple[RunKey, ...] = ()
    snapshots: tuple[str, ...] = ()
    discarded: tuple[RunKey, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeExpired:
    """The lease of a node expired, because its agent sent no message in time, or has stopped. The node is lost.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        node: Name of the node.
        orphans: Number of snapshots of which the node had the only copy, by the id of their experiment. The core adds it.
    """

    at: float
    node: str
    orphans: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeDrained:
    """A person drained a node.

    It gets no new runs, and its runs are suspended at their next boundary. The drain lasts until `NodeUndrained`.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        node: Name of the node.
        deadline: Time at which the runs that are left are ended (`DrainExpired`); None: never, or unchanged if the node is drained.
    """

    at: float
    node: str
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class NodeUndrained:
    """A person ended the drain of a node, which gets runs again."""

    at: float
    node: str


@dataclass(frozen=True, slots=True)
class DrainExpired:
    """The deadline of a node's drain has passed: the runs that are left on it are ended as LOST."""

    at: float
    node: str


@dataclass(frozen=True, slots=True)
class NodeLeaving:
    """The agent of a node announced that it is stopping.

    The node gets no new runs, its runs are suspended at their next boundary, and the snapshots that only it has are uploaded. This ends
    when an agent with another incarnation joins.
    """

    at: float
    node: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class NodeForgotten:
    """A node that is not connected was removed from the list of nodes, by a person or because it was lost long ago.

    An agent that joins with this name later is a new node. The event has no effect on a connected node.
    """

    at: float
    node: str


@dataclass(frozen=True, slots=True)
class NodeEvicted:
    """An agent deleted its copies of the snapshots with the hashes `snapshots` to free disk space.

    It is not journalled. The `CopiesEvicted` events that it causes for streams are.
    """

    at: float
    node: str
    snapshots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoreQuotaSet:
    """The quota of the store changed. `size` is the maximum size in bytes (> 0) of the snapshots of all experiments; None: no limit."""

    at: float
    size: int | None


@dataclass(frozen=True, slots=True)
class StreamDeleted:
    """A client deleted all experiments of an ended stream. The transaction that stores this event deletes the stream and its rows.

    Its blobs are deleted afterwards; `DeletionCompleted` records the end of that. Nodes delete its logs when they are connected.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream.
        experiments: Ids of all its experiments.
        bundles: Hashes of their code bundles.
        request: Idempotency key of the request.
    """

    at: float
    stream: StreamId
    experiments: tuple[ExperimentId, ...]
    bundles: tuple[str, ...] = ()
    request: str = ""


@dataclass(frozen=True, slots=True)
class DeletionCompleted:
    """The blobs of the deleted stream `stream` were deleted from the store. Logs and snapshots on nodes may still exist."""

    at: float
    stream: StreamId
