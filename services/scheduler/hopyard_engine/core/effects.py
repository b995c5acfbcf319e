"""What the core wants done. The shell journals every `Record` of a batch before it carries out the other effects."""

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
    """An event to append to a stream of the journal ("cluster", or an experiment's id)."""

    stream: StreamId
    event: Event


@dataclass(frozen=True, slots=True)
class UpCall:
    """An up-call to the experiment's policy; its answer comes back as `PolicyAnswered` with the same number."""

    stream: StreamId
    number: int
    at: float
    seed: int
    call: Call
    verdicts: tuple[Verdict, ...] = ()


@dataclass(frozen=True, slots=True)
class AskOutside:
    """A question to something outside the core; comes back as `Answered` with the same ticket. Idempotent by ticket.

    `experiment` is the one whose generator is asked; empty: the question is the policy's. `seconds` is how long a solver may think.
    """

    stream: StreamId
    ticket: str
    kind: str
    payload: Any
    experiment: ExperimentId = ExperimentId("")
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class WithdrawQuestion:
    """Nobody waits any more for the answer to what was asked with this ticket."""

    stream: StreamId
    ticket: str


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Asks for `TimerElapsed` at a time. A later one with the same ticket replaces it; `at` None cancels it."""

    stream: StreamId
    ticket: str
    at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of a run: decisions of the engine that the run follows on its node.

    Each is copied by its name into the field of `StartRun` (resource_manager.proto). Its value is plain: a number, a text, a truth
    value, or a tuple of these.
    """

    until: int
    allowed: int
    snapshot_at: tuple[int, ...]
    snapshot_every: int
    completes: bool = False
    ships_by_order: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(RunOptions):
    """Starts a run on a slot. `place` is where the slot's node has the partition that `input` names; None: it is a path."""

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
    """The decision on a boundary; `allowed` 0 leaves it as it is."""

    kind: DecisionKind
    position: int
    allowed: int = 0


@dataclass(frozen=True, slots=True)
class Amend:
    """Moves `until` (None: unchanged) or adds save points."""

    ticket: str
    until: int | None
    snapshot_at: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Kill:
    """Ends the process at once, without saving."""

    reason: Reason


CommandBody = Start | Decide | Amend | Kill


@dataclass(frozen=True, slots=True)
class Send:
    """A command to a run: the next of its channel. Kept by the core until acknowledged, and sent again when asked."""

    node: str
    run: RunKey
    sequence: int
    body: CommandBody


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Everything up to this sequence of a run's channel is taken over (and journalled, once this effect is carried out)."""

    run: RunKey
    sequence: int


@dataclass(frozen=True, slots=True)
class ShipmentOrder:
    """A node is to bring a snapshot to the store. Kept by the core until answered, and sent after each welcome: see `Core.orders`."""

    stream: StreamId
    number: int
    job: str
    position: int
    sha256: str


@dataclass(frozen=True, slots=True)
class OrdersGiven:
    """A node got orders to ship, and no welcome that brings them: they are sent now (`Core.orders`)."""

    node: str


@dataclass(frozen=True, slots=True)
class AcknowledgeShipment:
    """A node's answer to an order is taken over, or is not needed any more."""

    node: str
    stream: StreamId
    order: int


@dataclass(frozen=True, slots=True)
class Welcome:
    """Answers `NodeJoined`: these runs of the node are not wanted, so it ends them before it takes any command."""

    node: str
    unknown: tuple[RunKey, ...]


@dataclass(frozen=True, slots=True)
class ForgetSnapshot:
    """Nobody needs these bytes any more: delete them from the nodes, and with `stored` from the store, if they got there.

    Without an experiment: none in the core knows them. A finished one that it does not have may still hold them.
    """

    stream: StreamId
    sha256: str
    nodes: tuple[str, ...]
    stored: bool


@dataclass(frozen=True, slots=True)
class ReportAccepted:
    """A report that is now part of a job's statistics: a projection of the journal. `experiment` is the job's own.

    What else of the job changes with it, such as its position, comes into its row with the next `JobChanged`. `combined` is what
    the parts of an evaluation say together, with the last of them.
    """

    experiment: ExperimentId
    job: str
    attempt: int
    report: Report
    combined: Report | None = None


@dataclass(frozen=True, slots=True)
class Profiled:
    """A job was profiled on slots of one kind: kept for later experiments of the same `training` (`Settings.training`)."""

    experiment: ExperimentId
    job: str
    training: str
    measured: Measured


@dataclass(frozen=True, slots=True)
class JobChanged:
    """A job's row must be projected again; `removed` when the job is no more. `experiment` is the job's own."""

    experiment: ExperimentId
    job: str
    removed: bool = False


@dataclass(frozen=True, slots=True)
class ExperimentChanged:
    """The row of an experiment, alone in its stream or not, must be projected again."""

    experiment: ExperimentId


@dataclass(frozen=True, slots=True)
class Noted:
    """Something people should know, such as a re-executed report that differs from the recorded one.

    With `aloud` it concerns the experiment as a whole, and is told beside whatever event it followed from.
    """

    stream: StreamId
    job: str
    reason: Reason
    aloud: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """What a person, a client or the process of an older attempt wanted is not done. The reason says what, and why not."""

    stream: StreamId
    job: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class DemandChanged:
    """For the cluster part: the experiment can use so many slots, `gang` at once; None: as many as it can get.

    Only slots on these `nodes` are of use to it; none: all are.
    """

    stream: StreamId
    slots: int | None
    gang: int = 1
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TermsChanged:
    """For the cluster part: the weight or the cap of a stream's experiments together changed."""

    stream: StreamId
    weight: float
    cap: int | None


@dataclass(frozen=True, slots=True)
class SlotReturned:
    """For the cluster part: the experiment gives a slot back."""

    stream: StreamId
    slot: str


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """For the cluster part: the stream's experiments are over and hold no more slots."""

    stream: StreamId


@dataclass(frozen=True, slots=True)
class StreamRevived:
    """For the cluster part: a stream whose experiments were over goes on and wants slots again."""

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
