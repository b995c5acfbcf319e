"""Down-calls: the commands of a policy to the engine, and their outcomes.

Fields named `job`, `slot` and `experiment` contain ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hopyard.policy.vocabulary.reasons import Reason
from hopyard.policy.vocabulary.values import Decision, Hyperparameters, RunMode

MOST_SECONDS: Final = 86400.0
"""Maximum time limit of a solver, in seconds."""


@dataclass(frozen=True, slots=True)
class ReserveSlot:
    """The command to reserve an idle slot: until `ReleaseSlot` it is not in `Cluster.idle_slots`, but a `StartJob` can name it.

    Attributes:
        slot: The id of the slot.
    """

    slot: str


@dataclass(frozen=True, slots=True)
class ReleaseSlot:
    """The command to make a reserved slot idle again.

    Attributes:
        slot: The id of the slot.
    """

    slot: str


@dataclass(frozen=True, slots=True)
class CreateJob:
    """The command to create a job.

    Attributes:
        job: The id of the new job (`Cluster.new_job_id`).
        hyperparameters: The job's configuration; None: the generator proposes one.
        experiment: In a group, the id of the job's experiment; empty: the running one with the fewest jobs relative to
            its weight (`ExperimentView.weight`); with a `limit`, the first experiment of the group.
        limit: The position at which the job is complete; None: that of its experiment. A job with a limit needs
            hyperparameters and is not one of the experiment's allowed number of jobs.
    """

    job: str
    hyperparameters: Hyperparameters | None = None
    experiment: str = ""
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class StartJob:
    """The command to start or resume an idle job on one slot, or on all slots of a gang.

    Attributes:
        job: The id of an idle job.
        slots: The ids of idle or reserved slots of this experiment; rank 0 of a gang gets the first, and so on.
        until: The position to which the run trains. It then waits in memory for a decision (`IterationFinish.at_until`).
            None: the position at which jobs of its experiment are complete.
        allowed: Reports below this position need no decision, and training does not wait there; None: every report
            needs one.
        snapshot_at: Positions at which the run saves and continues.
        inputs: The name of an input partition for each slot id; empty: the run gets no partition.
        mode: Whether the run trains, evaluates a snapshot, or measures the time of an iteration.
        from_snapshot: The snapshot from which the run starts: (job, position); None: the job's newest snapshot, or the
            beginning if it has none.
        preemptible: If False, the run keeps its slots up to `until` even if the share decreases.
        parts: With the mode EVALUATE, the number of runs (parts) among which the evaluation is divided, each on one
            partition; their metrics are combined when all parts have reported. 0: only this run evaluates, and its report is
            used at once.
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
    """The command to change a job's current run. An `AnswerReady` follows.

    Its result has `accepted`, whether the run applies the change (False: nothing changes, for example because the run has passed one
    of the positions), and `position`: that of the run or, if it is not accepted, the one that new positions must exceed.

    Attributes:
        job: The id of a job with a run.
        ticket: Identifies the answer.
        until: The new position to which the run trains; None: unchanged.
        snapshot_at: Additional positions at which the run saves and continues.
    """

    job: str
    ticket: str
    until: int | None = None
    snapshot_at: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SuspendJob:
    """The command to suspend a running job: at its next boundary the run saves its state and releases its slots.

    Attributes:
        job: The id of a job with a run.
    """

    job: str


@dataclass(frozen=True, slots=True)
class TerminateJob:
    """The command to end a job for good, without saving: a running one at its next boundary, an idle one at once.

    It has no effect on a job that has already ended.

    Attributes:
        job: The id of the job.
    """

    job: str


@dataclass(frozen=True, slots=True)
class ForkJob:
    """The command to create a job that starts from another job's snapshot. The snapshot is kept until the new job has its own.

    Attributes:
        job: The id of the new job (`Cluster.new_job_id`).
        parent: The id of the job with the snapshot.
        position: The position of the snapshot.
        hyperparameters: The configuration of the new job.
        experiment: In a group, the id of the new job's experiment; empty: the parent's.
    """

    job: str
    parent: str
    position: int
    hyperparameters: Hyperparameters
    experiment: str = ""


@dataclass(frozen=True, slots=True)
class AnswerJob:
    """The command to give an idle job another job's results up to a position, without a run.

    If `Policy.evaluates` is set, the policy uses it with `source` equal to `job` to complete a job that has trained to
    its end with the job's own results.

    Attributes:
        job: The id of an idle job.
        source: The id of the job with the results, or "EXPERIMENT/JOB" from `Cluster.earlier`.
        position: The last position of the results that the job gets.
        completes: Whether the job is then complete. If False, it gets the results and continues to wait.
    """

    job: str
    source: str
    position: int
    completes: bool = True


@dataclass(frozen=True, slots=True)
class LabelJob:
    """The command to set the priority of a job. Idle jobs are ordered by priority, highest first, then FIFO.

    Attributes:
        job: The id of the job.
        priority: The priority; jobs without this command have 0. NaN is refused.
    """

    job: str
    priority: float


@dataclass(frozen=True, slots=True)
class Predict:
    """The command that asks the experiment's predictor to extrapolate a job's curve. Exactly one `PredictionReady` follows.

    Attributes:
        ticket: Identifies the answer.
        job: The id of a job that has not ended.
        parameters: Optional `target`: the prediction contains the probability that the metric is at least as good as this value
            (default: the experiment's target). Optional `horizon`: the last position (default: where the job would be complete).
    """

    ticket: str
    job: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ask:
    """The command to send a request to a solver (`hopyard.solver`), such as a planner. Exactly one `AnswerReady` follows.

    Attributes:
        ticket: Identifies the request and its answer.
        kind: The solver's name, or `module:Class`.
        payload: The solver's input: plain data that can be written as JSON.
        seconds: Time limit in seconds, above 0 and at most `MOST_SECONDS` (a day).
    """

    ticket: str
    kind: str
    payload: Any = None
    seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class WakeAt:
    """The command that requests a `TimerFired` at a time.

    Attributes:
        ticket: Identifies the timer; the `TimerFired` has the same ticket.
        at: The time in seconds since the Unix epoch, by the engine's clock. A time in the past is reached at once.
    """

    ticket: str
    at: float


@dataclass(frozen=True, slots=True)
class EndExperiment:
    """The command to end the experiment as if its target were reached.

    The winner is saved and completed; all other jobs are terminated.

    Attributes:
        reason: The reason, a sentence for users.
        winner: The id of the best job, which must have reported; empty: none.
        experiment: In a group, the id of the experiment to end; empty: the winner's, or without a winner all of them.
    """

    reason: str
    winner: str = ""
    experiment: str = ""


@dataclass(frozen=True, slots=True)
class BillRun:
    """The command to declare which experiments of a group need the results of a job's run.

    They share the slot time of the run in equal parts. The declaration applies from the run's next report on.

    Attributes:
        job: The id of a job with a run.
        wanted: The ids of experiments of the group, each with the last position that it needs. Slot time after the largest of these
            positions is assigned to the job's own experiment, as it is without this command.
    """

    job: str
    wanted: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class KeepSnapshots:
    """The command to declare from which snapshots of a job a run may still start.

    The policy must not start from any other one later. The command replaces earlier `KeepSnapshots` for the job and earlier
    requests with `snapshot_at`; snapshots requested later are kept as usual. Not affected are pinned snapshots, and the latest and
    best ones that a job retains anyway (`snapshot.keep_latest` and `snapshot.keep_best` of the experiment file). An ended job whose
    experiment has left its group retains only its result.

    Attributes:
        job: The id of the job.
        positions: The positions of the snapshots to keep; empty: none.
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
    """The outcome of one command that the engine has checked.

    Attributes:
        command: The command.
        accepted: Whether the engine carried it out.
        reason: Why it was refused; None if it was accepted.
    """

    command: Command
    accepted: bool
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A policy's answer to one up-call.

    Attributes:
        number: The number of the up-call.
        decision: The decision on the run; only for an `IterationFinish`, else None.
        commands: The commands in the order in which the engine carries them out, before the decision.
    """

    number: int
    decision: Decision | None = None
    commands: tuple[Command, ...] = ()
