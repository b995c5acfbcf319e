"""Events of the core. Each event carries its time, because the core reads no clock.

`at` is always the time of the event in seconds since the Unix epoch, by the scheduler's clock. Snapshots are identified by the SHA-256
hashes of their contents.

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
    """An agent opened a session and announced what its node has.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        node: Name of the node.
        incarnation: Identifies the agent's process: it changes when the agent restarts.
        slots: All slots of the node.
        runs: Channels of the run processes that the agent still has.
        snapshots: Hashes of the snapshots on its disk.
    """

    at: float
    node: str
    incarnation: str
    slots: tuple[SlotSpec, ...]
    runs: tuple[RunKey, ...] = ()
    snapshots: tuple[str, ...] = ()


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


# --------------------------------------------------------------------------------------------------------- stream events


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


@dataclass(frozen=True, slots=True)
class Started:
    """A process of a run has attached to its agent and loaded its state (message of a run).

    Attributes:
        position: Position at which it starts.
        fetched: Bytes of the snapshot that the agent transferred for it; 0: no transfer was needed.
        from_store: Whether the transfer was from the store; else it was from another agent.
    """

    position: int
    fetched: int = 0
    from_store: bool = False


@dataclass(frozen=True, slots=True)
class Reports:
    """New reports of a run, ordered by position (message of a run). There is at least one."""

    reports: tuple[Report, ...]


@dataclass(frozen=True, slots=True)
class Amended:
    """The answer of a run to an `Amend` command (message of a run).

    Attributes:
        ticket: Ticket of the command.
        accepted: Whether the run applies the amendment.
        position: Position of the run when it answered.
    """

    ticket: str
    accepted: bool
    position: int


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """A snapshot was written to the disk of the run's node (message of a run). `SnapshotStored` reports its upload."""

    snapshot: SnapshotInfo


@dataclass(frozen=True, slots=True)
class SnapshotStored:
    """The result of the upload of a snapshot of the run (message of a run). The message may arrive after the run has ended.

    Attributes:
        position: Position of the snapshot.
        sha256: Hash of its contents.
        error: Why the upload failed permanently; empty: the snapshot is in the store.
    """

    position: int
    sha256: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """A process of a run has ended and left its slot (message of a run).

    Attributes:
        reason: How the run ended.
        position: The position that it reached.
        snapshot: The snapshot that it saved at the end; None: none.
        user_code: Whether user code caused a failure.
        cause: The cause of the end, from the agent or from the engine; None: unknown.
        snapshot_missing: Whether the process could not load its snapshot, because neither a node nor the store had it.
        finished: Whether the program ended by itself and has nothing more to train.
        unable: Whether the program failed repeatedly in a way that would make every job fail on that node.
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
        """The cause of the end; a reason with an empty message if the cause is unknown."""
        return self.cause or Reason.of(ReasonCode.RUN_MESSAGE, message="")


RunBody = Started | Reports | Amended | SnapshotTaken | SnapshotStored | Ended


@dataclass(frozen=True, slots=True)
class RunMessage:
    """A message of one process of a run.

    Attributes:
        at: Time at which the scheduler received it, in seconds since the Unix epoch.
        stream: Id of the stream.
        job: Id of the job.
        attempt: Attempt number of the run.
        rank: Rank of the process.
        sequence: Sequence number in the channel of the process, from 1.
        body: The content of the message.
    """

    at: float
    stream: StreamId
    job: str
    attempt: int
    rank: int
    sequence: int
    body: RunBody


@dataclass(frozen=True, slots=True)
class SnapshotShipped:
    """The answer of a node to an upload order.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream.
        node: Name of the node.
        order: Number of the order (`ShipmentOrder`).
        job: Id of the job.
        position: Position of the snapshot.
        sha256: Hash of its contents.
        error: Why the upload failed permanently; empty: the snapshot is in the store.
    """

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
    """The policy answered an up-call, and stated its demand for slots.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream.
        answer: The answer, with the number of the up-call.
        demand: Number of slots that the policy can use now; None: as many as possible.
        gang: Number of slots that it takes at once (>= 1).
        nodes: Names of the only nodes whose slots it can use, sorted; empty: any node.
        rungs: For each job on a rung of successive halving (job id, number of its highest rung with a result, number of rungs of its
            bracket). Stated only with a demand of 0, when the experiment may end, to explain where jobs stopped. It does not affect
            any decision of the core.
    """

    at: float
    stream: StreamId
    answer: Answer
    demand: int | None = None
    gang: int = 1
    nodes: tuple[str, ...] = ()
    rungs: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyFailed:
    """The policy raised an error, returned an invalid answer, or exceeded its time for an up-call.

    The RUNNING experiments of the stream are paused.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream.
        number: Number of the up-call.
        reason: What happened.
        unheard: Whether the policy exceeded its time. If so, the up-call is made again with another number when an experiment of the
            stream is resumed, and a replay skips the first one.
    """

    at: float
    stream: StreamId
    number: int
    reason: Reason
    unheard: bool = False

    @property
    def diverged(self) -> bool:
        """Whether the failure is that a replay of the policy gave other decisions than the recorded ones.

        If so, the policy did not receive the up-call that the failure answers.
        """
        return self.reason.code is ReasonCode.POLICY_DIVERGED


@dataclass(frozen=True, slots=True)
class PolicyProcess:
    """A process for the stream's policy connected or disconnected. For information only; the event changes no state.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream.
        here: True: the process connected. False: it disconnected.
        again: Number of earlier up-calls that were repeated to the process, because it started without state.
    """

    at: float
    stream: StreamId
    here: bool
    again: int = 0


@dataclass(frozen=True, slots=True)
class Answered:
    """A generator, predictor or solver answered an `AskOutside` question.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream.
        ticket: Ticket of the question.
        result: The answer as plain data; None if there is an error. A generator also answers None if it has no more proposals.
        error: Why there is no answer; empty: no error.
    """

    at: float
    stream: StreamId
    ticket: str
    result: Any = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class TimerElapsed:
    """A timer elapsed. `ticket` is the ticket of the timer (`SetTimer`)."""

    at: float
    stream: StreamId
    ticket: str


@dataclass(frozen=True, slots=True)
class Requested:
    """A client requests that a configuration is trained up to a position. A request with a known ticket has no effect.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream.
        ticket: Identifies the request within the experiment.
        hyperparameters: The configuration.
        position: The position up to which to train it.
        experiment: Id of the experiment; empty: the first experiment of the stream.
        more: Number of requests that follow from the same call of the client.
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
    """A person or client requests a change of the state of an experiment, or that its idle time begins again.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream.
        action: "pause" suspends the runs of the experiment, "resume" continues a paused experiment, "stop" ends the experiment as
            STOPPED, "close" as COMPLETED. "keep" restarts the timer that ends an experiment without work after `Settings.idle` seconds.
        experiment: Id of the experiment; empty: the first experiment of the stream.
    """

    at: float
    stream: StreamId
    action: Literal["pause", "resume", "stop", "close", "keep"]
    experiment: ExperimentId = ExperimentId("")


@dataclass(frozen=True, slots=True)
class JobOperated:
    """A person sends a command for a job, of the kind that policies send, such as `TerminateJob`.

    If the command ends a job without a run, the policy gets a new `AllocateJobs` up-call, because other jobs may have waited for that
    job.
    """

    at: float
    stream: StreamId
    command: Command


@dataclass(frozen=True, slots=True)
class JobHeld:
    """A person pauses a job (`held` is True) or resumes it (`held` is False).

    The present run of a paused job is suspended at its next boundary. After it the job gets no slot, whatever the policy commands.

    If the job has no run, the policy gets a new `AllocateJobs` up-call.
    """

    at: float
    stream: StreamId
    job: str
    held: bool


@dataclass(frozen=True, slots=True)
class SlotReserved:
    """A client reserves an idle slot of the stream. The policy cannot use the slot until its reservation ends.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream.
        slot: Id of the slot.
        request: Identifies the reservation. A repeated request has no effect while the slot is reserved. Empty: each event is a new
            request.
    """

    at: float
    stream: StreamId
    slot: str
    request: str = ""


@dataclass(frozen=True, slots=True)
class Updated:
    """A person changes the settings of an experiment.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream.
        request: Identifies the change; a repeated change has no effect.
        more_jobs: Number added to `Settings.jobs`.
        max_position: New maximum position, if it is higher than the present one; None: unchanged.
        more_seconds: Seconds added to `Settings.max_seconds`.
        target: New target; None: unchanged.
        weight: New weight; None: unchanged.
        slots: New maximum number of slots; None: unchanged.
        experiment: Id of the experiment; empty: the first experiment of the stream.
        concurrency: New maximum number of jobs that train at the same time; None: unchanged.
        cleared: Names of the limits to remove: "target", "slots", "concurrency".
        metric: New name of the metric, for all experiments of the stream; empty: unchanged.
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
    metric: str = ""


@dataclass(frozen=True, slots=True)
class JobsRetried:
    """A person lets failed jobs start again. An ended experiment continues. If one of the jobs cannot start again, none does.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream.
        request: Idempotency key of the retry: after a retry that was not refused, a later request with the same key retries nothing.
        jobs: Ids of the jobs, which belong to one experiment.
        experiment: Id of that experiment.
    """

    at: float
    stream: StreamId
    request: str
    jobs: tuple[str, ...]
    experiment: ExperimentId


@dataclass(frozen=True, slots=True)
class Imported:
    """The stream was imported: all records before this one come from another cluster, whose nodes and slots are not available here.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream.
        request: Identifies the import; a repeated import has no effect.
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
    | JobsRetried
    | SlotReserved
    | Updated
)

Event = ClusterEvent | StreamEvent
