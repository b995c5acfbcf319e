"""Events of the core. Each event carries its time, because the core reads no clock.

Cluster events concern nodes and slots. Stream events carry the id of a stream and are recorded in its journal. The cluster state also
creates stream events (`SlotGranted`, `SlotRecalled`, `NodeLost`, `NodeBack`, `NodeDraining`, `ShareSet`). They are recorded in the
journal of the stream, so that each stream can be replayed without the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from hopyard.policy.vocabulary import (
    Answer,
    Command,
    ExperimentId,
    Hyperparameters,
    Report,
    RunEndReason,
    RunKey,
    StreamId,
)
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.types import (
    EarlierTrial,
    Measured,
    PlacedData,
    PlacedPartition,
    PolicyVersion,
    Settings,
    SlotSpec,
    SnapshotInfo,
)

# -------------------------------------------------------------------------------------------------------- cluster events


@dataclass(frozen=True, slots=True)
class NodeJoined:
    """An agent opened a session and announced its slots, the runs it has and the snapshots (by hash) on its disk.

    `incarnation` identifies the agent's process: it changes when the agent restarts.
    """

    at: float
    node: str
    incarnation: str
    slots: tuple[SlotSpec, ...]
    runs: tuple[RunKey, ...] = ()
    snapshots: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeExpired:
    """A node's lease expired: its agent sent no message in time."""

    at: float
    node: str


@dataclass(frozen=True, slots=True)
class NodeDrained:
    """A node is drained: it gets no new runs, and its runs are suspended at their next boundary, until its agent restarts."""

    at: float
    node: str


@dataclass(frozen=True, slots=True)
class NodeEvicted:
    """An agent deleted its copies of these snapshots to free disk space. The resulting `CopiesEvicted` events are journalled."""

    at: float
    node: str
    snapshots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoreQuotaSet:
    """The quota of the store changed: the snapshots of all experiments may take `size` bytes (> 0); None: no limit."""

    at: float
    size: int | None


ClusterEvent = NodeJoined | NodeExpired | NodeDrained | NodeEvicted | StoreQuotaSet


# --------------------------------------------------------------------------------------------------------- stream events


@dataclass(frozen=True, slots=True)
class StreamCreated:
    """The first event of a stream.

    Attributes:
        at: Time of the event.
        stream: Id of the stream: the id of its first experiment.
        settings: Settings of that experiment.
        payload: Data of the caller (specification, bundle), which the core only stores.
        data: The partitioned data to train on; None: the program finds its data by itself.
        earlier: Training of earlier experiments in the same search plan, whose results jobs may reuse.
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
    """An experiment with the same `share` key joins the stream. All experiments of a stream have one policy and one share.

    Attributes:
        at: Time of the event.
        stream: Id of the stream, which is the id of its first experiment.
        experiment: Id of the experiment that joins.
        settings: Settings of that experiment.
        payload: As in `StreamCreated`.
        earlier: As in `StreamCreated`. It may contain trials that the group already has.
    """

    at: float
    stream: StreamId
    experiment: ExperimentId
    settings: Settings
    payload: Any = None
    earlier: tuple[EarlierTrial, ...] = ()


@dataclass(frozen=True, slots=True)
class SlotGranted:
    """The cluster granted a slot to the stream, with its CPU threads, its GPUs and its kind of host.

    `incarnation` is that of the node's agent. The runs on the node are lost when it changes.
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
    """The stream must return a slot that another stream needs. It gets a slot of another kind instead."""

    at: float
    stream: StreamId
    slot: str


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node is lost with its slots, its runs and its snapshots, except the `snapshots` (by hash) known to be on its disk."""

    at: float
    stream: StreamId
    node: str
    snapshots: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeBack:
    """A node opened a session again and announced what it has of this stream.

    Attributes:
        at: Time of the event.
        stream: Id of the stream.
        node: The node.
        runs: Channels that the node still has.
        snapshots: Hashes of the snapshots on its disk.
        lost: Channels that the node had accepted and no longer has.
        gone: Slots that the node no longer has; their runs are lost too.
        ship: Snapshots (job, position) on its disk that no run uploads any more. The node gets an order to upload them.
    """

    at: float
    stream: StreamId
    node: str
    runs: tuple[RunKey, ...] = ()
    snapshots: tuple[str, ...] = ()
    lost: tuple[RunKey, ...] = ()
    gone: tuple[str, ...] = ()
    ship: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeDraining:
    """A node is drained: the stream's runs on it are suspended at their next boundary, and its slots are returned.

    Attributes:
        at: Time of the event.
        stream: Id of the stream.
        node: The node.
        unsent: Processes on the node whose start command was not sent yet, because the node was drained while the policy was
            computing its answer. Their runs end before they begin.
    """

    at: float
    stream: StreamId
    node: str
    unsent: tuple[RunKey, ...] = ()


@dataclass(frozen=True, slots=True)
class CopiesEvicted:
    """A node deleted its copies of these snapshots of the stream, which are in the store."""

    at: float
    stream: StreamId
    node: str
    snapshots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SnapshotsGivenUp:
    """The store quota is exceeded: the stream must delete its snapshots with these hashes, except those that it needs now."""

    at: float
    stream: StreamId
    snapshots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DataChanged:
    """The locations of these partitions changed. Other partitions are unchanged."""

    at: float
    stream: StreamId
    partitions: tuple[PlacedPartition, ...]


@dataclass(frozen=True, slots=True)
class ShareSet:
    """The stream's share changed: it may hold this number of slots."""

    at: float
    stream: StreamId
    slots: int


@dataclass(frozen=True, slots=True)
class Started:
    """A process of the run is attached and has loaded its state.

    Its agent fetched `fetched` bytes for it, from the store if `from_store`, else from another agent; 0: nothing was fetched.
    """

    position: int
    fetched: int = 0
    from_store: bool = False


@dataclass(frozen=True, slots=True)
class Reports:
    """Reports of a run, ordered by position."""

    reports: tuple[Report, ...]


@dataclass(frozen=True, slots=True)
class Amended:
    """The run's answer to an `Amend` command."""

    ticket: str
    accepted: bool
    position: int


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """A snapshot was written to the disk of the run's node."""

    snapshot: SnapshotInfo


@dataclass(frozen=True, slots=True)
class SnapshotStored:
    """A snapshot of the run is in the store, or with an `error` its upload failed for good. It may arrive after the run has ended."""

    position: int
    sha256: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """A process of the run ended and left its slot.

    Attributes:
        reason: How the run ended.
        position: The position reached.
        snapshot: The snapshot that it saved at the end; None: none.
        user_code: Whether user code caused a failure.
        cause: The cause, from the agent or from the engine; None: unknown.
        snapshot_missing: Whether the process could not load its snapshot, which was found neither on a node nor in the store.
        finished: Whether the program ended by itself and has nothing more to train.
        unable: Whether the program failed repeatedly in a way that would fail any job on that node.
    """

    reason: RunEndReason
    position: int
    snapshot: SnapshotInfo | None = None
    user_code: bool = False
    cause: Reason | None = None
    snapshot_missing: bool = False
    finished: bool = False
    unable: bool = False

    @property
    def detail(self) -> Reason:
        """The cause, or an empty message if it is unknown."""
        return self.cause or Reason.of(ReasonCode.RUN_MESSAGE, message="")


RunBody = Started | Reports | Amended | SnapshotTaken | SnapshotStored | Ended


@dataclass(frozen=True, slots=True)
class RunMessage:
    """A message of a process of a run. Sequence numbers of a channel start at 1."""

    at: float
    stream: StreamId
    job: str
    attempt: int
    rank: int
    sequence: int
    body: RunBody


@dataclass(frozen=True, slots=True)
class SnapshotShipped:
    """A node's answer to the upload order `order`: the snapshot is in the store, or with an `error` its upload failed for good."""

    at: float
    stream: StreamId
    node: str
    order: int
    job: str
    position: int
    sha256: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class PolicyAnswered:
    """The policy's answer to an up-call, with its demand: the number of slots that it can use now, in gangs of at least `gang`.

    `nodes` are the only nodes whose slots it can use, in order; empty: any node.
    """

    at: float
    stream: StreamId
    answer: Answer
    demand: int | None = None
    gang: int = 1
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyFailed:
    """The policy raised an error, returned an invalid answer or exceeded its time for an up-call. Its experiments are paused.

    Attributes:
        at: Time of the event.
        stream: Id of the stream.
        number: Number of the up-call.
        reason: What happened.
        unheard: Whether the policy was given up before it answered. Replay then skips this up-call: it is made again, with another
            number, when the experiment is resumed.
    """

    at: float
    stream: StreamId
    number: int
    reason: Reason
    unheard: bool = False

    @property
    def diverged(self) -> bool:
        """True if the policy was not asked: a replay of it gave other decisions than the recorded ones, which pauses the experiment."""
        return self.reason.code is ReasonCode.POLICY_DIVERGED


@dataclass(frozen=True, slots=True)
class PolicyProcess:
    """A process for the stream's policy connected or disconnected. For information only; it changes no state.

    Attributes:
        at: Time of the event.
        stream: Id of the stream.
        here: Whether the process connected.
        again: Number of up-calls that were repeated to it, because it started without state.
    """

    at: float
    stream: StreamId
    here: bool
    again: int = 0


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to an `AskOutside` question; `result` is None if there is an error."""

    at: float
    stream: StreamId
    ticket: str
    result: Any = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class TimerElapsed:
    """The timer with this ticket elapsed."""

    at: float
    stream: StreamId
    ticket: str


@dataclass(frozen=True, slots=True)
class Requested:
    """A client requests that a configuration is trained to a position. A repeated `ticket` has no effect.

    An empty `experiment` means the first experiment of the stream. `more` is the number of requests of the same call that follow.
    """

    at: float
    stream: StreamId
    ticket: str
    hyperparameters: Hyperparameters
    position: int
    experiment: ExperimentId = ExperimentId("")
    more: int = 0


@dataclass(frozen=True, slots=True)
class Operated:
    """A person or client acts on `experiment`; empty: the first experiment of the stream.

    "close" completes the experiment; "keep" restarts its idle timer (`Settings.idle`).
    """

    at: float
    stream: StreamId
    action: Literal["pause", "resume", "stop", "close", "keep"]
    experiment: ExperimentId = ExperimentId("")


@dataclass(frozen=True, slots=True)
class JobOperated:
    """A person sends a command for a job, of the kind that policies send.

    If the command ends a job without a run, the policy gets a new up-call, because other jobs may have waited for that job.
    """

    at: float
    stream: StreamId
    command: Command


@dataclass(frozen=True, slots=True)
class JobHeld:
    """A person pauses a job (`held`) or resumes it (not `held`). A paused job gets no slot, whatever the policy commands.

    If the job has no run, the policy gets a new up-call, as after `JobOperated`.
    """

    at: float
    stream: StreamId
    job: str
    held: bool


@dataclass(frozen=True, slots=True)
class SlotReserved:
    """A client reserves an idle slot of the stream. The policy cannot use the slot until it is released.

    `request` identifies the reservation: a repeated request has no effect while the slot is reserved. Empty: always a new
    reservation.
    """

    at: float
    stream: StreamId
    slot: str
    request: str = ""


@dataclass(frozen=True, slots=True)
class Updated:
    """A person changes the settings of an experiment; None leaves a setting unchanged. A repeated `request` has no effect.

    An empty `experiment` means the first experiment of the stream. `cleared` names the limits to remove: "target", "slots",
    "concurrency".
    """

    at: float
    stream: StreamId
    request: str
    more_jobs: int = 0
    max_position: int | None = None
    more_seconds: float = 0.0
    target: float | None = None
    weight: float | None = None
    slots: int | None = None
    experiment: ExperimentId = ExperimentId("")
    concurrency: int | None = None
    cleared: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Imported:
    """The stream was imported: all records before this one come from another cluster, whose nodes and slots are not available here.

    Attributes:
        at: Time of the event.
        stream: Id of the stream.
        request: Id of the import; a repeated import has no effect.
        snapshots: Hashes of the snapshots that were imported into the store. All others are lost.
    """

    at: float
    stream: StreamId
    request: str
    snapshots: tuple[str, ...] = ()


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
    | SlotReserved
    | Updated
)

Event = ClusterEvent | StreamEvent
