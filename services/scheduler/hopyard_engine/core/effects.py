"""Effects of the core. The caller journals every `Record` of a batch before it carries out any other effect."""

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
    """An event to append to the journal, in the stream "cluster" or in the stream of an experiment."""

    stream: StreamId
    event: Event


@dataclass(frozen=True, slots=True)
class UpCall:
    """An up-call to the policy of a stream. The answer is a `PolicyAnswered` event with the same number."""

    stream: StreamId
    number: int
    at: float
    seed: int
    call: Call
    verdicts: tuple[Verdict, ...] = ()


@dataclass(frozen=True, slots=True)
class AskOutside:
    """A question to a generator, a predictor or a solver, answered by an `Answered` event with the same ticket.

    Asking again with the same ticket is safe. `experiment` is the experiment whose generator is asked; empty for a question of the
    policy. `seconds` is a solver's time limit.
    """

    stream: StreamId
    ticket: str
    kind: str
    payload: Any
    experiment: ExperimentId = ExperimentId("")
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class WithdrawQuestion:
    """Cancels the question with this ticket: nobody needs its answer."""

    stream: StreamId
    ticket: str


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Requests a `TimerElapsed` event at a time. A later effect with the same ticket replaces the timer; `at` None cancels it."""

    stream: StreamId
    ticket: str
    at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options that the engine gives a run's node.

    Each is copied into the field of `StartRun` (resource_manager.proto) with the same name. Values are numbers, texts, booleans, or
    tuples of these.
    """

    until: int
    allowed: int
    snapshot_at: tuple[int, ...]
    snapshot_every: int
    completes: bool = False
    ships_by_order: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(RunOptions):
    """Starts a process of a run on a slot. `place` is the location of the partition `input` on the node; None: `input` is a path."""

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
    """The decision at a boundary. `allowed` 0 does not change the run's allowed position."""

    kind: DecisionKind
    position: int
    allowed: int = 0


@dataclass(frozen=True, slots=True)
class Amend:
    """Changes `until` (None: unchanged) or adds positions at which to save a snapshot."""

    ticket: str
    until: int | None
    snapshot_at: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Kill:
    """Kills the process immediately, without a snapshot."""

    reason: Reason


CommandBody = Start | Decide | Amend | Kill


@dataclass(frozen=True, slots=True)
class Send:
    """The next command on a run's channel. The core keeps it until it is acknowledged and can resend it."""

    node: str
    run: RunKey
    sequence: int
    body: CommandBody


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Acknowledges all messages of a run's channel up to this sequence number; their events are in the journal by then."""

    run: RunKey
    sequence: int


@dataclass(frozen=True, slots=True)
class ShipmentOrder:
    """An order to a node to upload a snapshot to the store.

    The core keeps it until the node answers. `Core.orders` returns the open orders to send after each welcome.
    """

    stream: StreamId
    number: int
    job: str
    position: int
    sha256: str


@dataclass(frozen=True, slots=True)
class OrdersGiven:
    """A node has new upload orders and no welcome follows: the caller sends them now (`Core.orders`)."""

    node: str


@dataclass(frozen=True, slots=True)
class AcknowledgeShipment:
    """Acknowledges a node's answer to an upload order, including answers that are no longer needed."""

    node: str
    stream: StreamId
    order: int


@dataclass(frozen=True, slots=True)
class Welcome:
    """Answers `NodeJoined`. The node must end the `unknown` runs before it accepts commands."""

    node: str
    unknown: tuple[RunKey, ...]


@dataclass(frozen=True, slots=True)
class ForgetSnapshot:
    """Deletes a snapshot that nobody needs: from these nodes and, if `stored`, from the store.

    An empty stream means that no stream in the core knows the snapshot. A finished experiment that is not in memory may still own it.
    """

    stream: StreamId
    sha256: str
    nodes: tuple[str, ...]
    stored: bool


@dataclass(frozen=True, slots=True)
class ReportAccepted:
    """A new report of a job, to be added to its statistics rows. `experiment` is the job's own.

    The job's own row changes with the next `JobChanged`. `combined` is set with the last part of an evaluation: its combined metrics.
    """

    experiment: ExperimentId
    job: str
    attempt: int
    report: Report
    combined: Report | None = None


@dataclass(frozen=True, slots=True)
class Profiled:
    """The result of a profile on slots of one kind, stored for later experiments with the same `training` (`Settings.training`)."""

    experiment: ExperimentId
    job: str
    training: str
    measured: Measured


@dataclass(frozen=True, slots=True)
class JobChanged:
    """A job's row must be projected again, or deleted if `removed`. `experiment` is the job's own."""

    experiment: ExperimentId
    job: str
    removed: bool = False


@dataclass(frozen=True, slots=True)
class ExperimentChanged:
    """The row of an experiment must be projected again."""

    experiment: ExperimentId


@dataclass(frozen=True, slots=True)
class Noted:
    """A notice for people, such as a repeated report that differs from the recorded one.

    With `aloud` the notice concerns the whole experiment and is shown in addition to the event that caused it.
    """

    stream: StreamId
    job: str
    reason: Reason
    aloud: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """A request of a person or client, or a message of an older attempt, was refused. The reason says what and why."""

    stream: StreamId
    job: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class DemandChanged:
    """For the cluster state: the number of slots that the stream can use, in gangs of `gang`; None: as many as possible.

    Only slots on `nodes` are usable; an empty tuple means any node.
    """

    stream: StreamId
    slots: int | None
    gang: int = 1
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TermsChanged:
    """For the cluster state: the total weight or slot limit (`cap`) of a stream's experiments changed."""

    stream: StreamId
    weight: float
    cap: int | None


@dataclass(frozen=True, slots=True)
class SlotReturned:
    """For the cluster state: the stream returns a slot."""

    stream: StreamId
    slot: str


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """For the cluster state: all experiments of the stream have ended, and it releases its slots."""

    stream: StreamId


@dataclass(frozen=True, slots=True)
class StreamRevived:
    """For the cluster state: an ended stream continues and needs slots again."""

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
    | ForgetSnapshot
    | ReportAccepted
    | Profiled
    | JobChanged
    | ExperimentChanged
    | Noted
    | Refused
    | ClusterEffect
)
