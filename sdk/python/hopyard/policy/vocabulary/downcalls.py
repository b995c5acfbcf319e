"""Down-calls: what a policy wants done, and how it is answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hopyard.policy.vocabulary.values import Decision, Hyperparameters, RunMode

MOST_SECONDS: Final = 86400.0
"""How long a solver may think at most."""


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


@dataclass(frozen=True, slots=True)
class KeepSnapshots:
    """Say from which of a job's snapshots something may still start; the policy starts from no other one of them any more.

    It replaces what was said of that job before, and what was asked by `snapshot_at`; save points that are asked for later are
    kept as ever. What the job retains by itself stays. An ended job whose experiment has left its group retains nothing by itself
    but its result.

    Attributes:
        job: A job.
        positions: Those of its snapshots that are to stay.
    """

    job: str
    positions: tuple[int, ...] = ()


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
    | KeepSnapshots
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
