"""Down-calls: the commands of a policy and the answers to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hopyard.policy.vocabulary.reasons import Reason
from hopyard.policy.vocabulary.values import Decision, Hyperparameters, RunMode

MOST_SECONDS: Final = 86400.0
"""Maximum time limit of a solver."""


@dataclass(frozen=True, slots=True)
class ReserveSlot:
    """Reserve an idle slot for later use by this policy."""

    slot: str


@dataclass(frozen=True, slots=True)
class ReleaseSlot:
    """Undo `ReserveSlot`."""

    slot: str


@dataclass(frozen=True, slots=True)
class CreateJob:
    """Create a job. Without hyperparameters the generator proposes them.

    `experiment` names one of a group; empty: the one whose number of jobs is furthest behind its weight. With a
    `limit`, the job is complete at that position instead of the experiment's. It then needs hyperparameters and does
    not count as one of the experiment's allowed jobs. It belongs to the first experiment of the group unless another
    one is named.
    """

    job: str
    hyperparameters: Hyperparameters | None = None
    experiment: str = ""
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class StartJob:
    """Start or resume an idle job on one slot, or on all slots of a gang.

    Attributes:
        job: An idle job.
        slots: Idle slots of this experiment, in the order of ranks.
        until: Train up to here, then park and report `at_until`; None: the max position of the job's experiment.
        allowed: Reports below this position need no decision; None: every report needs one.
        snapshot_at: Positions at which the run saves and continues.
        inputs: Input partition by slot.
        mode: Train, evaluate, or profile.
        from_snapshot: Start from this snapshot (job, position); None: from the job's newest snapshot, or the beginning.
        preemptible: If False, the run keeps its slots up to `until` even if the share decreases.
        parts: Number of parts of the evaluation that this run is one of. Their combined metrics count when all parts
            have reported. 0: the report counts at once.
    """

    job: str
    slots: tuple[str, ...]
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
    """Move `until` or add save points of a current run. An `AnswerReady` with `accepted` and `position` follows."""

    job: str
    ticket: str
    until: int | None = None
    snapshot_at: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SuspendJob:
    """Save and leave the slot at the run's next boundary."""

    job: str


@dataclass(frozen=True, slots=True)
class TerminateJob:
    """End a job: a running one at its next boundary, an idle one at once."""

    job: str


@dataclass(frozen=True, slots=True)
class ForkJob:
    """Create a job that starts from another job's snapshot at `position`. The snapshot is kept until the child has one.

    `experiment` names one of a group; empty: the parent's.
    """

    job: str
    parent: str
    position: int
    hyperparameters: Hyperparameters
    experiment: str = ""


@dataclass(frozen=True, slots=True)
class AnswerJob:
    """Complete a job with another job's results up to `position`, without a run.

    If `completes` is False, the job gets these results and continues to wait. If the policy `evaluates`, it completes a
    job that has trained to its end with the job's own results; the job is then its own source.
    """

    job: str
    source: str
    position: int
    completes: bool = True


@dataclass(frozen=True, slots=True)
class LabelJob:
    """Set the priority of a job. Idle jobs are ordered by priority, highest first; those without one are FIFO."""

    job: str
    priority: float


@dataclass(frozen=True, slots=True)
class Predict:
    """Ask the experiment's predictor to extrapolate a job's curve.

    `parameters` may contain a `target` (default: the experiment's) and a `horizon` (default: where the job would be
    complete).
    """

    ticket: str
    job: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask a solver (`hopyard.solver`), such as a planner with a time limit. Exactly one `AnswerReady` follows in any case.

    Attributes:
        ticket: Identifies the question among the open questions of the experiment.
        kind: The solver's name, or `module:Class`.
        payload: The solver's input: plain data.
        seconds: Time limit, in (0, `MOST_SECONDS`].
    """

    ticket: str
    kind: str
    payload: Any = None
    seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Request a `TimerFired` at a time (seconds since the epoch, on the core's clock)."""

    ticket: str
    at: float


@dataclass(frozen=True, slots=True)
class EndExperiment:
    """End the experiment as if its target were reached. The winner is saved and completed; all other jobs are terminated.

    Attributes:
        reason: The reason, which users see.
        winner: The best job, which must have reported; empty: none.
        experiment: Names one of a group; empty: the winner's, or without a winner all of them.
    """

    reason: str
    winner: str = ""
    experiment: str = ""


@dataclass(frozen=True, slots=True)
class BillRun:
    """Declare who needs the results of a job's run. From its next report on, they share its slot time in equal parts.

    Attributes:
        job: A job with a run.
        wanted: Experiments of the group, each with the last position that it needs. After the last position of all of
            them, and without this command, the job's own experiment gets all the time.
    """

    job: str
    wanted: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class KeepSnapshots:
    """Declare from which snapshots of a job a run may still start. The policy must not start from any other one later.

    The command replaces earlier ones for the job and earlier requests with `snapshot_at`; save points requested later
    are kept as usual. Snapshots that the job retains in any case are not affected. An ended job whose experiment has
    left its group retains only its result.

    Attributes:
        job: A job.
        positions: The snapshots to keep.
    """

    job: str
    positions: tuple[int, ...] = ()


Command = (
    ReserveSlot
    | ReleaseSlot
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
    """The outcome of a command: accepted, or refused with a reason."""

    command: Command
    accepted: bool
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A policy's answer to one up-call: commands in order, and the decision on the run (only for iteration finishes)."""

    number: int
    decision: Decision | None = None
    commands: tuple[Command, ...] = ()
