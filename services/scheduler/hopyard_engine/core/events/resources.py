"""Events that give a stream its experiments, slots, nodes and data, or take them away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hopyard.policy.vocabulary import ExperimentId, RunKey, StreamId
from hopyard_engine.core.types import EarlierTrial, Measured, PlacedData, PlacedPartition, PolicyVersion, Settings


@dataclass(frozen=True, slots=True)
class StreamCreated:
    """An experiment was created that does not join an existing group. This is the first event of a stream.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream: the id of its first experiment.
        settings: Settings of that experiment.
        payload: Data of the caller (specification, bundle), which the core only stores.
        data: The partitioned data to train on; None: the data is not partitioned.
        earlier: Trainings of earlier experiments in the same search plan, whose results jobs may reuse.
        scaling: Times that earlier experiments measured for the same training on several slots.
        policy: The policy and its version, for information; None: unknown.
    """

    at: float
    stream: StreamId
    settings: Settings
    payload: Any = None
    data: PlacedData | None = None
    earlier: tuple[EarlierTrial, ...] = ()
    scaling: tuple[Measured, ...] = ()
    policy: PolicyVersion | None = None


@dataclass(frozen=True, slots=True)
class ExperimentJoined:
    """An experiment with the same `share` key joined the stream. All experiments of a stream have one policy and one share.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream, which is the id of its first experiment.
        experiment: Id of the experiment that joins.
        settings: Settings of that experiment.
        payload: Data of the caller (specification, bundle), which the core only stores.
        earlier: Trainings of earlier experiments, whose results jobs may reuse. It may contain trials that the stream already has.
    """

    at: float
    stream: StreamId
    experiment: ExperimentId
    settings: Settings
    payload: Any = None
    earlier: tuple[EarlierTrial, ...] = ()


@dataclass(frozen=True, slots=True)
class SlotGranted:
    """The cluster granted a slot to the stream.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream.
        slot: Id of the slot.
        node: Name of its node.
        cpus: Number of CPU threads of the slot.
        gpus: Indices of its GPUs on the node.
        incarnation: Incarnation of the node's agent (`NodeJoined`). If it changes, the runs on the node are lost.
        hardware: Kind of host; empty: unknown.
    """

    at: float
    stream: StreamId
    slot: str
    node: str
    cpus: int = 1
    gpus: tuple[int, ...] = ()
    incarnation: str = ""
    hardware: str = ""


@dataclass(frozen=True, slots=True)
class SlotRecalled:
    """The stream must return a slot, because another stream needs this kind of slot.

    An idle slot is returned immediately. Else its run is preempted, unless it is not preemptible, and the slot is returned when the run
    has left. The stream gets a slot of another kind instead.
    """

    at: float
    stream: StreamId
    slot: str


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node of the stream is lost: its slots, its runs and its snapshot copies.

    The copies of `snapshots` (hashes) are not lost, because the restarted agent announced them.
    """

    at: float
    stream: StreamId
    node: str
    snapshots: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeBack:
    """A node opened a session again. The event says what it has of this stream.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream.
        node: Name of the node.
        runs: Channels that the agent still has.
        snapshots: Hashes of the snapshots on its disk.
        lost: Channels that the agent had accepted and no longer has.
        gone: Ids of the slots that the node no longer has. Runs on them are lost too.
        ship: Snapshots (job, position) on its disk that no run uploads any more. The node gets orders to upload them.
        discarded: Runs that the agent discarded, because the cluster was restored from a backup while the agent kept running.
    """

    at: float
    stream: StreamId
    node: str
    runs: tuple[RunKey, ...] = ()
    snapshots: tuple[str, ...] = ()
    lost: tuple[RunKey, ...] = ()
    gone: tuple[str, ...] = ()
    ship: tuple[tuple[str, int], ...] = ()
    discarded: tuple[RunKey, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeDraining:
    """A node with slots or snapshots of the stream is drained, or its agent is stopping.

    Runs on it are suspended at their next boundary, its slots are returned, and the snapshots that only it has are uploaded.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream.
        node: Name of the node.
        unsent: Processes on the node whose start command was not sent yet, because the node was drained while the policy was computing
            its answer. Their runs end before they begin.
        leaving: Whether the agent of the node is stopping.
        expired: Whether the deadline of the drain has passed: the processes that are left on the node are killed.
        others: The other nodes that are drained or stopping. A snapshot that only these nodes have is uploaded too.
    """

    at: float
    stream: StreamId
    node: str
    unsent: tuple[RunKey, ...] = ()
    leaving: bool = False
    expired: bool = False
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CopiesEvicted:
    """A node deleted its copies of snapshots of the stream to free disk space.

    `snapshots` are their hashes; the contents are in the store.
    """

    at: float
    stream: StreamId
    node: str
    snapshots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SnapshotsGivenUp:
    """The store quota is exceeded: the stream must delete its snapshots with the hashes `snapshots`, except those that it needs."""

    at: float
    stream: StreamId
    snapshots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DataChanged:
    """The locations of partitions of the stream's data changed.

    `partitions` has the changed or new ones, each with all its present locations. All other partitions are unchanged.
    """

    at: float
    stream: StreamId
    partitions: tuple[PlacedPartition, ...]


@dataclass(frozen=True, slots=True)
class ShareSet:
    """The stream's share changed: it may use `slots` slots from now on."""

    at: float
    stream: StreamId
    slots: int
