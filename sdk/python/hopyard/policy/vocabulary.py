"""The words that policies and the core share: up-calls, decisions, commands, and the values in them.

Everything here is a frozen dataclass or an enumeration of the standard library, so that the deterministic core, the policy
host, the simulator and a policy's own tests all speak of the same things without converting them. The wire form is
`hopyard/v1/policy.proto`; this module is its Python twin.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

ENDLESS: Final = 2**31 - 1
"""A max position, or a number of jobs, that stands for no limit."""

MOST_SECONDS: Final = 86400.0
"""How long a solver may think at most."""

Metrics = Mapping[str, float]
Hyperparameters = Mapping[str, Any]


class JobState(enum.Enum):
    """Where a job stands. The legal changes between the states are a table in the core.

    A HELD job was paused by a person. To a policy it is not there until it is idle again: starting or ending it is refused.

    Attributes:
        idle: Whether the job waits for a machine.
        live: Whether a run of the job holds machines.
        ended: Whether the job will never run again.
    """

    idle: bool
    live: bool
    ended: bool

    CREATING = "CREATING"
    PENDING = "PENDING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    SUSPENDING = "SUSPENDING"
    SUSPENDED = "SUSPENDED"
    HELD = "HELD"
    COMPLETED = "COMPLETED"
    TERMINATED = "TERMINATED"
    FAILED = "FAILED"

    # Jobs are counted by state all the time, and an enumeration's own hash is many times slower; nothing rests on its value.
    __hash__ = object.__hash__

    def __init__(self, name: str) -> None:
        self.idle = name in ("PENDING", "SUSPENDED")
        self.live = name in ("STARTING", "RUNNING", "SUSPENDING")
        self.ended = name in ("COMPLETED", "TERMINATED", "FAILED")


class RunMode(enum.Enum):
    """What a run does: train and advance the job, evaluate a snapshot and change nothing, or train a little to see how long it takes.

    PROFILE trains a copy that is thrown away, on as much of its input as tells how long an iteration takes. The run's only report has
    that as the metric `seconds`, goes to `Policy.on_profile`, and is recorded nowhere else. If it fails, that costs the job nothing.
    """

    TRAIN = "TRAIN"
    EVALUATE = "EVALUATE"
    PROFILE = "PROFILE"


class RunEndReason(enum.Enum):
    """Why a run ended."""

    UNTIL = "UNTIL"
    SUSPENDED = "SUSPENDED"
    PREEMPTED = "PREEMPTED"
    LOST = "LOST"
    FAILED = "FAILED"
    TERMINATED = "TERMINATED"


class DecisionKind(enum.Enum):
    """What a run shall do at a boundary."""

    CONTINUE = "CONTINUE"
    SUSPEND = "SUSPEND"
    TERMINATE = "TERMINATE"
    PARK = "PARK"


@dataclass(frozen=True, slots=True)
class Decision:
    """A policy's decision on a run that finished an iteration.

    CONTINUE trains on; with `up_to` no decision is needed before that position. At the run's `until`, if that was not moved
    by `amend_run` in the same answer, CONTINUE ends the run with reason UNTIL. PARK is legal at `until` only: the run stays in
    memory with its lease until an `amend_run`, `suspend_job` or `terminate_job` reaches it.
    """

    kind: DecisionKind
    up_to: int | None = None

    @classmethod
    def proceed(cls, up_to: int | None = None) -> Decision:
        """Train on; see `CONTINUE`."""
        return cls(DecisionKind.CONTINUE, up_to)


CONTINUE = Decision(DecisionKind.CONTINUE)
SUSPEND = Decision(DecisionKind.SUSPEND)
TERMINATE = Decision(DecisionKind.TERMINATE)
PARK = Decision(DecisionKind.PARK)


@dataclass(frozen=True, slots=True)
class Report:
    """One report of a run: what it measured at a position.

    Attributes:
        position: How far the job has trained, in units (>= 0).
        metrics: Doubles by name; NaN and infinities are legal.
        seconds: Wall seconds of training since the run's previous report.
        part: Input partition of an evaluation by parts; empty: the whole.
        examples: Examples behind the metrics: the weight of the part (0 counts as 1).
        at_until: The run has reached its `until` and is parked.
        finished: The training process has nothing more to train; the job completes here.
    """

    position: int
    metrics: Metrics
    seconds: float = 0.0
    part: str = ""
    examples: int = 0
    at_until: bool = False
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of an experiment's data, and who holds it.

    Attributes:
        name: What a run's `inputs` call it: its split and number, such as "train/3" or "eval/0".
        examples: How many examples it has; None: not known.
        bytes: Its size.
        nodes: The live nodes that hold it now, in order of name; empty: nobody can train on it.
        anywhere: Whether every other node can get it when it first needs it.
    """

    name: str
    examples: int | None = None
    bytes: int = 0
    nodes: tuple[str, ...] = ()
    anywhere: bool = False


@dataclass(frozen=True, slots=True)
class Data:
    """The partitioned data of an experiment: what is trained on and what is evaluated on, each in order of number.

    Which nodes hold a partition changes; the partitions themselves never do.
    """

    name: str
    train: tuple[Partition, ...]
    evaluate: tuple[Partition, ...] = ()


# --------------------------------------------------------------------------------------------------------------- up-calls


@dataclass(frozen=True, slots=True)
class AllocateJobs:
    """Machines are idle within this experiment's share."""


@dataclass(frozen=True, slots=True)
class ApplicationStat:
    """A job reported statistics at a position above its high-water mark."""

    job: str
    report: Report
    input: str = ""
    mode: RunMode = RunMode.TRAIN


@dataclass(frozen=True, slots=True)
class IterationFinish:
    """A job finished an iteration; the answer carries a decision.

    `repeated` says that an earlier attempt had reported this position before it was lost: that happens only at a run's `until`.
    """

    job: str
    report: Report
    repeated: bool = False

    @property
    def at_until(self) -> bool:
        """Whether the run has reached its `until`, is parked in memory and holds its lease."""
        return self.report.at_until

    @property
    def position(self) -> int:
        """The position of the report."""
        return self.report.position


@dataclass(frozen=True, slots=True)
class RunEnd:
    """A run is over. `resume_position` is where the job would go on from now."""

    job: str
    attempt: int
    reason: RunEndReason
    position: int
    resume_position: int
    message: str = ""
    mode: RunMode = RunMode.TRAIN


@dataclass(frozen=True, slots=True)
class JobCreated:
    """A created job has its configuration and is idle."""

    job: str


@dataclass(frozen=True, slots=True)
class GeneratorExhausted:
    """A job that was to be created is not: the generator has no further configuration."""

    job: str


@dataclass(frozen=True, slots=True)
class PredictionReady:
    """A prediction that was asked for; `result` is a `hopyard.predictor.Prediction`, None with an error."""

    ticket: str
    job: str
    result: Any = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class AnswerReady:
    """What was asked with `ask` or `amend_run` is answered; `result` is None with an error."""

    ticket: str
    result: Any = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class RequestMade:
    """A client asks for a configuration trained to a position.

    `job` is the job that was made for it: it is idle, is complete at the position, and is none of those that the experiment
    may have. There is no `JobCreated` for it.
    """

    ticket: str
    hyperparameters: Hyperparameters
    position: int
    job: str = ""


@dataclass(frozen=True, slots=True)
class ShareChange:
    """The experiment may hold `slots` machines from now on; what is above is taken at `deadline` (None: nothing is above)."""

    slots: int
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class MachinesChange:
    """Machines of the experiment came or went, or its partitions are held by other nodes than before."""

    joined: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExperimentChange:
    """The experiment itself changed, or one of its group: `experiment` says which, and only in a group one joins or ends."""

    change: Literal["extended", "target", "paused", "resumed", "joined", "ended"]
    experiment: str = ""


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The time of a `wake_at` has come."""

    ticket: str


Call = (
    AllocateJobs
    | ApplicationStat
    | IterationFinish
    | RunEnd
    | JobCreated
    | GeneratorExhausted
    | PredictionReady
    | AnswerReady
    | RequestMade
    | ShareChange
    | MachinesChange
    | ExperimentChange
    | TimerFired
)


# ----------------------------------------------------------------------------------------------------------- down-calls


@dataclass(frozen=True, slots=True)
class ReserveMachine:
    """Keep an idle machine for this policy's own later use."""

    machine: str


@dataclass(frozen=True, slots=True)
class ReleaseMachine:
    """Undo `ReserveMachine`."""

    machine: str


@dataclass(frozen=True, slots=True)
class CreateJob:
    """Make a job; without hyperparameters the generator is asked.

    `experiment` names one of a group; empty: the one whose jobs so far are furthest behind its weight. With a `limit` the job is
    complete there, wherever the experiment's are; it needs hyperparameters, is none of the jobs that the experiment may have,
    and is of the experiment that the group began with unless another one is named.
    """

    job: str
    hyperparameters: Hyperparameters | None = None
    experiment: str = ""
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class StartJob:
    """Start or resume an idle job on one machine, or on a gang: all or none.

    Attributes:
        job: An idle job.
        machines: Idle machines of this experiment; rank order.
        until: Train up to here, then park and report `at_until`; None: the max position of the job's experiment.
        allowed: Reports below this position need no decision; None: each one does.
        snapshot_at: Positions at which the run saves and goes on.
        inputs: Input partition by machine.
        mode: Train, evaluate, or profile.
        from_snapshot: (job, position) to start from; None: the job's own newest snapshot, or nothing.
        preemptible: False keeps the machine up to `until` whatever happens to the share.
        parts: An evaluation of one of so many parts: their metrics count, combined, when all have reported; 0: each counts at once.
    """

    job: str
    machines: tuple[str, ...]
    until: int | None = None
    allowed: int | None = None
    snapshot_at: tuple[int, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)
    mode: RunMode = RunMode.TRAIN
    from_snapshot: tuple[str, int] | None = None
    preemptible: bool = True
    parts: int = 0


@dataclass(frozen=True, slots=True)
class AmendRun:
    """Move `until` or add save points of a run under way; answered by `AnswerReady` with accepted and position."""

    job: str
    ticket: str
    until: int | None = None
    snapshot_at: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SuspendJob:
    """Save and leave the machine at the run's next boundary."""

    job: str


@dataclass(frozen=True, slots=True)
class TerminateJob:
    """End a job: a running one at its next boundary, an idle one at once."""

    job: str


@dataclass(frozen=True, slots=True)
class ForkJob:
    """Make a job that starts from another's snapshot at `position`, which stays pinned until the child has its own.

    `experiment` names one of a group; empty: the parent's.
    """

    job: str
    parent: str
    position: int
    hyperparameters: Hyperparameters
    experiment: str = ""


@dataclass(frozen=True, slots=True)
class AnswerJob:
    """Complete a job from another's results up to `position`, without a run.

    With `completes` False the job has these results from now on, and goes on waiting. A job whose policy `evaluates` is completed,
    when it has trained to its end, with its own: it is the source itself.
    """

    job: str
    source: str
    position: int
    completes: bool = True


@dataclass(frozen=True, slots=True)
class LabelJob:
    """Give a job a priority: idle jobs are ordered by it, higher first, FIFO without one."""

    job: str
    priority: float


@dataclass(frozen=True, slots=True)
class Predict:
    """Ask the experiment's predictor to extrapolate a job's curve.

    `parameters` may hold a `target` (default: the experiment's) and a `horizon` (default: where the job would be complete).
    """

    ticket: str
    job: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask a solver (`hopyard.solver`), such as a planner with a time limit; answered by `AnswerReady`, once, come what may.

    Attributes:
        ticket: Names the question; no other one of the experiment that is open has it.
        kind: The solver's name, or `module:Class`.
        payload: What it is told: plain data.
        seconds: How long it may think, in (0, `MOST_SECONDS`].
    """

    ticket: str
    kind: str
    payload: Any = None
    seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Ask for a `TimerFired` at a time (seconds since the epoch, the core's clock)."""

    ticket: str
    at: float


@dataclass(frozen=True, slots=True)
class EndExperiment:
    """End the experiment as reaching its target does: the winner is saved and completed, every other job is terminated.

    Attributes:
        reason: Why, in words for people.
        winner: The job that the experiment was for, one that has reported; empty: none.
        experiment: Names one of a group; empty: the winner's, or without a winner all of them.
    """

    reason: str
    winner: str = ""
    experiment: str = ""


@dataclass(frozen=True, slots=True)
class BillRun:
    """Say who wants what a job's run trains: its machine time is theirs from its next report on, in equal parts.

    Attributes:
        job: A job with a run.
        wanted: Experiments of the group, each with the position up to which it wants it. Beyond all of them the time is that of the
            job's own experiment, which also has all of it while nobody says anything.
    """

    job: str
    wanted: tuple[tuple[str, int], ...] = ()


Command = (
    ReserveMachine
    | ReleaseMachine
    | CreateJob
    | StartJob
    | AmendRun
    | SuspendJob
    | TerminateJob
    | ForkJob
    | AnswerJob
    | LabelJob
    | Predict
    | Ask
    | WakeAt
    | EndExperiment
    | BillRun
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a command: accepted, or refused with the reason."""

    command: Command
    accepted: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A policy's answer to one up-call: commands in order, then the decision on the run (iteration finishes only)."""

    number: int
    decision: Decision | None = None
    commands: tuple[Command, ...] = ()
