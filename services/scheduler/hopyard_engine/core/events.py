"""What can happen to the core. Each event carries its time; nothing in the core reads a clock.

Cluster events concern nodes and slots. Stream events carry the id of a stream and are recorded in its journal. The cluster part
also creates stream events (`SlotGranted`, `SlotRecalled`, `NodeLost`, `NodeBack`, `NodeDraining`, `ShareSet`). They are
recorded in the journal of the stream, so that each stream can be replayed without the others.
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
    """An agent opened a session and said what it has and what it really runs."""

    at: float
    node: str
    incarnation: str
    slots: tuple[SlotSpec, ...]
    runs: tuple[RunKey, ...] = ()
    snapshots: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeExpired:
    """An agent was silent beyond its lease."""

    at: float
    node: str


@dataclass(frozen=True, slots=True)
class NodeDrained:
    """A node gets nothing more, and its runs are suspended at their next boundary, until its agent is started anew."""

    at: float
    node: str


@dataclass(frozen=True, slots=True)
class NodeEvicted:
    """An agent made room on its disk: it does not hold these snapshots any more. What follows from it is journalled."""

    at: float
    node: str
    snapshots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoreQuotaSet:
    """From now on the snapshots of all experiments together may take so many bytes (> 0) in the store; None: any."""

    at: float
    size: int | None


ClusterEvent = NodeJoined | NodeExpired | NodeDrained | NodeEvicted | StoreQuotaSet


# --------------------------------------------------------------------------------------------------------- stream events


@dataclass(frozen=True, slots=True)
class StreamCreated:
    """The first event of a stream.

    Attributes:
        at: When.
        stream: Its id: the id of its first experiment.
        settings: The terms of that experiment.
        payload: The shell's own (specification, bundle); the core keeps it.
        data: The partitioned data that it trains on; None: its runs find theirs themselves.
        earlier: What earlier experiments have trained below the same root of the search plan: jobs may be answered from it.
        scaling: What earlier experiments measured of the same training on several slots.
        policy: The policy and its version; the core decides nothing by it. None: nobody named it.
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
    """Another experiment with the same `share` key joins the stream: one policy for all of them, and one share.

    Attributes:
        at: When.
        stream: The stream, named after its first experiment.
        experiment: The experiment that joins.
        settings: Its own terms.
        payload: As with `StreamCreated`.
        earlier: Likewise; what the group has from earlier experiments already may be among it.
    """

    at: float
    stream: StreamId
    experiment: ExperimentId
    settings: Settings
    payload: Any = None
    earlier: tuple[EarlierTrial, ...] = ()


@dataclass(frozen=True, slots=True)
class SlotGranted:
    """The cluster gave the experiment a slot, which has so many CPU threads and these GPUs, and is of this kind of host.

    `incarnation` is the life of its node's agent: what runs there ends with it.
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
    """The experiment is to leave a slot that another one needs, and gets one of another kind for it."""

    at: float
    stream: StreamId
    slot: str


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node is gone with its slots, runs and local snapshots, except the `snapshots` that its disk is known to hold."""

    at: float
    stream: StreamId
    node: str
    snapshots: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeBack:
    """A node opened a session again: these of the experiment's runs and snapshots are really there.

    Attributes:
        at: When.
        stream: The stream of these runs and snapshots.
        node: Which node.
        runs: Channels that the node has.
        snapshots: What its disk holds.
        lost: Runs that it had taken over and has not any more.
        gone: Slots that it has not any more; their runs are lost too.
        ship: Snapshots (job, position) on its disk that no run brings to the store any more: it is told to.
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
    """A node is drained: the experiment's runs there are suspended at their next boundary, and its slots go back.

    Attributes:
        at: When.
        stream: The stream of these runs.
        node: Which node.
        unsent: Processes there whose start has not been sent, as the node was drained while the policy thought: their runs end
            before they begin.
    """

    at: float
    stream: StreamId
    node: str
    unsent: tuple[RunKey, ...] = ()


@dataclass(frozen=True, slots=True)
class CopiesEvicted:
    """A node has deleted its copies of these snapshots of the experiment, which are in the store."""

    at: float
    stream: StreamId
    node: str
    snapshots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SnapshotsGivenUp:
    """The store must make room: the experiment is to give up snapshots with these hashes, as far as it does not need them."""

    at: float
    stream: StreamId
    snapshots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DataChanged:
    """These partitions of the experiment's data lie elsewhere now. The others are where they were."""

    at: float
    stream: StreamId
    partitions: tuple[PlacedPartition, ...]


@dataclass(frozen=True, slots=True)
class ShareSet:
    """The experiment may hold so many slots."""

    at: float
    stream: StreamId
    slots: int


@dataclass(frozen=True, slots=True)
class Started:
    """The run's process is attached and has loaded its state.

    Its agent got `fetched` bytes of it from another agent or `from_store`; 0: it had them, or none were needed.
    """

    position: int
    fetched: int = 0
    from_store: bool = False


@dataclass(frozen=True, slots=True)
class Reports:
    """Reports of a run, in order of position."""

    reports: tuple[Report, ...]


@dataclass(frozen=True, slots=True)
class Amended:
    """The run's answer to an amendment."""

    ticket: str
    accepted: bool
    position: int


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """A snapshot lies on the disk of the run's node."""

    snapshot: SnapshotInfo


@dataclass(frozen=True, slots=True)
class SnapshotStored:
    """A snapshot of the run arrived in the store; may come after the run ended. With an `error` it never will."""

    position: int
    sha256: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """The run's process has left its slot.

    Attributes:
        cause: What its agent said, or what the engine knows; None: nothing.
        finished: It ended by itself and has nothing more to train.
        unable: Its program failed as it would for any job on that node, again and again.
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
        """The cause; without one a message that has no text."""
        return self.cause or Reason.of(ReasonCode.RUN_MESSAGE, message="")


RunBody = Started | Reports | Amended | SnapshotTaken | SnapshotStored | Ended


@dataclass(frozen=True, slots=True)
class RunMessage:
    """The next message of a run's channel: sequence 1, 2, 3, ..."""

    at: float
    stream: StreamId
    job: str
    attempt: int
    rank: int
    sequence: int
    body: RunBody


@dataclass(frozen=True, slots=True)
class SnapshotShipped:
    """A node answers the order of this number (`NodeBack.ship`): its snapshot is stored, or with an `error` never will be."""

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
    """The policy's answer to an up-call, how many slots it could use now, and how many of them at once at least.

    `nodes` are those on which they would be of use, in order; none: any.
    """

    at: float
    stream: StreamId
    answer: Answer
    demand: int | None = None
    gang: int = 1
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyFailed:
    """The policy raised, answered nonsense or took too long on an up-call; its experiment pauses.

    Attributes:
        at: When.
        stream: The stream of the policy.
        number: The up-call's.
        reason: What happened.
        unheard: The policy was given up before it answered. On a replay the up-call is not made here: it comes again, with
            another number, when the experiment is resumed.
    """

    at: float
    stream: StreamId
    number: int
    reason: Reason
    unheard: bool = False

    @property
    def diverged(self) -> bool:
        """Whether the policy was not asked: a replay found that it decides otherwise than it did."""
        return self.reason.code is ReasonCode.POLICY_DIVERGED


@dataclass(frozen=True, slots=True)
class PolicyProcess:
    """A process came that serves the experiment's policy, or went away. For people: nothing is decided by it.

    Attributes:
        at: When.
        stream: The stream of the policy.
        here: Whether it came.
        again: So many up-calls it was told anew: it remembered nothing.
    """

    at: float
    stream: StreamId
    here: bool
    again: int = 0


@dataclass(frozen=True, slots=True)
class Answered:
    """What the core asked the outside is answered; `result` is None with an error."""

    at: float
    stream: StreamId
    ticket: str
    result: Any = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class TimerElapsed:
    """The time of a timer has come."""

    at: float
    stream: StreamId
    ticket: str


@dataclass(frozen=True, slots=True)
class Requested:
    """A client asks for a configuration trained to a position. `ticket` makes it idempotent.

    It concerns `experiment`; empty: the first experiment of the stream.
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
    """A person or a client acts on `experiment`; empty: the first experiment of the stream.

    "close" ends it as one that has done its work; "keep" lets it be idle for its full time once more.
    """

    at: float
    stream: StreamId
    action: Literal["pause", "resume", "stop", "close", "keep"]
    experiment: ExperimentId = ExperimentId("")


@dataclass(frozen=True, slots=True)
class JobOperated:
    """A person acts on a job with a command that a policy could give too.

    If the command ends a job without a run, the policy gets a new up-call: other jobs may have waited for that job.
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
    """A client reserves an idle slot of the stream: the policy cannot use it until it is released.

    `request` identifies the reservation. A repeated request changes nothing while the slot is reserved; empty: it is a new one.
    """

    at: float
    stream: StreamId
    slot: str
    request: str = ""


@dataclass(frozen=True, slots=True)
class Updated:
    """A person changes an experiment's terms; None leaves a term as it is. `request` makes it idempotent.

    It concerns `experiment`; empty: the first experiment of the stream. `cleared` names the terms that do
    not hold any more: "target", "slots", "concurrency".
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
    """The stream up to here was written in another cluster, whose nodes and slots are not here.

    Attributes:
        at: When.
        stream: The stream.
        request: Names the import, so that a repeated one is recognised.
        snapshots: Those that came along and are in the store; all others are lost.
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
