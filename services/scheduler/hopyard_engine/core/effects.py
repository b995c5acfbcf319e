"""Effects of the core. The caller journals every `Record` of a batch before it carries out any other effect.

Times are in seconds since the Unix epoch. `stream` is the id of the stream that the effect belongs to, `job` the id of a job in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hopyard.policy.vocabulary import (
    Call,
    DecisionKind,
    ExperimentId,
    Hyperparameters,
    Report,
    RunKey,
    RunMode,
    StreamId,
    Verdict,
)
from hopyard.policy.vocabulary.reasons import Reason
from hopyard_engine.core.events import Event
from hopyard_engine.core.state.partitions import Place
from hopyard_engine.core.types import Measured, SnapshotInfo


@dataclass(frozen=True, slots=True)
class Record:
    """An event to append to the journal. `stream` is the stream that gets it: the event's own, or "cluster" for cluster events."""

    stream: StreamId
    event: Event


@dataclass(frozen=True, slots=True)
class UpCall:
    """An up-call to the policy of a stream. The answer is a `PolicyAnswered` event with the same number.

    Attributes:
        stream: Id of the stream.
        number: Number of the up-call within the stream, from 1.
        at: Time of the event that caused it, in seconds since the Unix epoch.
        seed: Seed of the policy's random generator for this up-call.
        call: The up-call.
        verdicts: Refusals of the policy's commands since the previous up-call.
    """

    stream: StreamId
    number: int
    at: float
    seed: int
    call: Call
    verdicts: tuple[Verdict, ...] = ()


@dataclass(frozen=True, slots=True)
class AskOutside:
    """A question to a generator, a predictor or a solver. The answer is an `Answered` event with the same ticket.

    A repeated question with the same ticket is allowed, for example after a restart.

    Attributes:
        stream: Id of the stream.
        ticket: Identifies the question within the stream.
        kind: "create_job" for a generator, "predict" for a predictor, else the name of a solver.
        payload: The question as plain data.
        experiment: Id of the experiment whose generator is asked; empty for a question of the policy.
        seconds: Time limit of a solver in seconds; 0: none.
    """

    stream: StreamId
    ticket: str
    kind: str
    payload: Any
    experiment: ExperimentId = ExperimentId("")
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class WithdrawQuestion:
    """Effect: cancel the question with this ticket (`AskOutside`), because its answer is no longer needed."""

    stream: StreamId
    ticket: str


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Effect: request a `TimerElapsed` event.

    Attributes:
        stream: Id of the stream, or `CLUSTER_STREAM`.
        ticket: Identifies the timer within the stream. A later effect with the same ticket replaces the timer.
        at: Time at which the timer elapses, in seconds since the Unix epoch; None cancels it.
    """

    stream: StreamId
    ticket: str
    at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of a run that are passed on to its node.

    Each is copied into the field of `StartRun` (resource_manager.proto) with the same name. Values are numbers, texts, booleans, or
    tuples of these.

    Attributes:
        until: Position at which the run stops training and waits for a decision.
        allowed: Position up to which it may train without a decision.
        snapshot_at: Positions at which it saves a snapshot.
        snapshot_every: Positions between periodic snapshots; 0: none.
        completes: Whether the run saves and ends at `until` without a decision.
        ships_by_order: Whether its snapshots are uploaded only when the scheduler orders it.
    """

    until: int
    allowed: int
    snapshot_at: tuple[int, ...]
    snapshot_every: int
    completes: bool = False
    ships_by_order: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(RunOptions):
    """Command: start a process of a run on a slot.

    Attributes:
        slot: Id of the slot.
        hyperparameters: The configuration.
        mode: Whether to train, evaluate or profile.
        snapshot: The snapshot to start from; None: start at position 0.
        snapshot_nodes: Names of the nodes with a copy of the snapshot.
        input: Name of the partition to read, or a path if the data is not partitioned; empty: none.
        rank_nodes: Names of the nodes of all ranks, in rank order.
        place: Location of the partition `input`; None: `input` is a path or empty.
    """

    slot: str
    hyperparameters: Hyperparameters
    mode: RunMode
    snapshot: SnapshotInfo | None
    snapshot_nodes: tuple[str, ...]
    input: str
    rank_nodes: tuple[str, ...]
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Decide:
    """Command: the decision for a run at a boundary.

    Attributes:
        kind: The decision.
        position: Position of the boundary.
        allowed: New position up to which the run may train without a decision; 0: unchanged.
    """

    kind: DecisionKind
    position: int
    allowed: int = 0


@dataclass(frozen=True, slots=True)
class Amend:
    """Command: change the end of a run or add positions at which it saves a snapshot. The answer is an `Amended` message.

    Attributes:
        ticket: Identifies the amendment in the answer.
        until: New position at which the run stops training; None: unchanged.
        snapshot_at: Additional positions at which to save a snapshot.
    """

    ticket: str
    until: int | None
    snapshot_at: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Kill:
    """Command: kill a process of a run immediately, without a snapshot. `reason` says why."""

    reason: Reason


CommandBody = Start | Decide | Amend | Kill


@dataclass(frozen=True, slots=True)
class Send:
    """Effect: send a command on a run's channel.

    The core stores it until the agent acknowledges it (`Core.acknowledge`), so that it can be sent again.

    Attributes:
        node: Name of the node.
        run: The channel.
        sequence: Number of the command in the channel, from 1.
        body: The command.
    """

    node: str
    run: RunKey
    sequence: int
    body: CommandBody


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Effect: acknowledge to an agent all messages of a run's channel up to and including number `sequence`.

    The effect follows the `Record` of the message, so the messages are in the journal when the agent gets it.
    """

    run: RunKey
    sequence: int


@dataclass(frozen=True, slots=True)
class ShipmentOrder:
    """An order to a node to upload a snapshot to the store.

    The core stores it until the node answers (`SnapshotShipped`). `Core.orders` returns the unanswered orders of a node.

    Attributes:
        stream: Id of the stream.
        number: Number of the order within the stream.
        job: Id of the job.
        position: Position of the snapshot.
        sha256: Hash of its contents.
    """

    stream: StreamId
    number: int
    job: str
    position: int
    sha256: str


@dataclass(frozen=True, slots=True)
class OrdersGiven:
    """Effect: send a node its unanswered upload orders (`Core.orders`) now.

    It is emitted when there are new orders during a session. At the beginning of a session they follow the `Welcome` effect instead.
    """

    node: str


@dataclass(frozen=True, slots=True)
class AcknowledgeShipment:
    """Effect: acknowledge a node's answer to upload order number `order` of a stream, so that the node stops resending it."""

    node: str
    stream: StreamId
    order: int


@dataclass(frozen=True, slots=True)
class Welcome:
    """The answer to `NodeJoined`.

    `unknown` are announced runs that the core no longer needs; the node must end them before it accepts commands.
    """

    node: str
    unknown: tuple[RunKey, ...]


@dataclass(frozen=True, slots=True)
class ForgetSnapshot:
    """Effect: delete snapshot contents that the stream no longer needs.

    Attributes:
        stream: The stream. Empty: no stream in the core has these contents, but a finished experiment that is not in memory may still
            own them.
        sha256: Hash of the contents.
        nodes: Names of the nodes that delete their copies.
        stored: Whether the stream also gives up its ownership in the store. The store deletes contents without an owner.
    """

    stream: StreamId
    sha256: str
    nodes: tuple[str, ...]
    stored: bool


@dataclass(frozen=True, slots=True)
class ReportAccepted:
    """A new report of a job, to be added to its statistics rows. The job's own row changes with the next `JobChanged`.

    Attributes:
        experiment: Id of the job's experiment.
        job: Id of the job.
        attempt: Attempt number of the run that reported.
        report: The report.
        combined: The metrics of all parts combined, if the report is the last part of an evaluation; else None.
    """

    experiment: ExperimentId
    job: str
    attempt: int
    report: Report
    combined: Report | None = None


@dataclass(frozen=True, slots=True)
class Profiled:
    """The result of a profiling run: the time of one iteration, to be stored for later experiments with the same `Settings.training`.

    Attributes:
        experiment: Id of the job's experiment.
        job: Id of the job.
        training: Key under which the result is stored (`Settings.training`): equal for trainings of equal speed.
        measured: The seconds of one iteration, with the number of slots and the kind of host.
    """

    experiment: ExperimentId
    job: str
    training: str
    measured: Measured


@dataclass(frozen=True, slots=True)
class NodeReleased:
    """Effect: tell the stopping agent of a node that it may end. No run, slot or upload on the node is needed any more."""

    node: str


@dataclass(frozen=True, slots=True)
class JobChanged:
    """Effect: write the row of a job in AppStat again from its present state, or delete the row if `removed` is True.

    `experiment` is the id of the job's experiment.
    """

    experiment: ExperimentId
    job: str
    removed: bool = False


@dataclass(frozen=True, slots=True)
class ExperimentChanged:
    """Effect: write the row of an experiment in AppStat again from its present state."""

    experiment: ExperimentId


@dataclass(frozen=True, slots=True)
class Noted:
    """A notice for people, such as a repeated report that differs from the recorded one.

    Attributes:
        stream: Id of the stream.
        job: Id of the job; empty: the notice is not about one job.
        reason: The notice.
        aloud: How the text description of the event that caused the notice (`explain.story`) shows it. True: as a separate statement.
            False: in parentheses in the statement about the event.
    """

    stream: StreamId
    job: str
    reason: Reason
    aloud: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """A request of a person or client, or a message of an older attempt, was refused. `reason` says what and why.

    `job` is the id of the job that the request or message named; empty: it named no job.
    """

    stream: StreamId
    job: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class DemandChanged:
    """For the cluster state: the demand of a stream changed.

    Attributes:
        stream: Id of the stream.
        slots: Number of slots that it can use; None: as many as possible.
        gang: Number of slots that it takes at once (>= 1).
        nodes: Names of the only nodes whose slots it can use; empty: any node.
    """

    stream: StreamId
    slots: int | None
    gang: int = 1
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TermsChanged:
    """For the cluster state: the total weight of a stream's experiments, or their total slot limit `cap` (None: no limit), changed."""

    stream: StreamId
    weight: float
    cap: int | None


@dataclass(frozen=True, slots=True)
class SlotReturned:
    """For the cluster state: the stream returns a slot, which becomes free."""

    stream: StreamId
    slot: str


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """For the cluster state: all experiments of the stream have ended, so it gets no slots any more."""

    stream: StreamId


@dataclass(frozen=True, slots=True)
class StreamRevived:
    """For the cluster state: an ended stream continues and competes for slots again."""

    stream: StreamId


ClusterEffect = DemandChanged | TermsChanged | SlotReturned | StreamEnded | StreamRevived

Effect = (
    Record
    | UpCall
    | AskOutside
    | WithdrawQuestion
    | SetTimer
    | Send
    | Acknowledge
    | AcknowledgeShipment
    | OrdersGiven
    | Welcome
    | NodeReleased
    | ForgetSnapshot
    | ReportAccepted
    | Profiled
    | JobChanged
    | ExperimentChanged
    | Noted
    | Refused
    | ClusterEffect
)
