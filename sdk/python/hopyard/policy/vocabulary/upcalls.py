"""Up-calls: the events and questions that a policy receives. `Policy` has a method for each.

Fields named `job` and `experiment` contain ids. A `ticket` is the text that identifies the policy's earlier command,
such as the result of `Cluster.ask`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from hopyard.policy.vocabulary.reasons import Reason
from hopyard.policy.vocabulary.values import Hyperparameters, Report, RunEndReason, RunMode


@dataclass(frozen=True, slots=True)
class AllocateJobs:
    """The up-call to start jobs, made when slots are idle within the experiment's share.

    If the policy sets `Policy.forks`, it is also made when a snapshot requested with `snapshot_at` is available.
    """


@dataclass(frozen=True, slots=True)
class ApplicationStat:
    """The up-call after a report of a job at a position above its high-water mark (the highest position reported before).

    `Policy.application_stat` handles it. With the mode PROFILE it is the measurement of a profiling run instead, which
    `Policy.on_profile` handles.

    Attributes:
        job: The id of the job.
        report: The report.
        input: The name of the input partition of the run; empty: none.
        mode: The mode of the run.
    """

    job: str
    report: Report
    input: str = ""
    mode: RunMode = RunMode.TRAIN


@dataclass(frozen=True, slots=True)
class IterationFinish:
    """The up-call after an iteration of a run. The answer must contain a decision on the run.

    Attributes:
        job: The id of the job.
        report: The report of the iteration.
        repeated: Whether an earlier attempt had already reported this position and was then lost. This happens only at
            a run's `until` position; other repeated reports make no up-call.
    """

    job: str
    report: Report
    repeated: bool = False

    @property
    def at_until(self) -> bool:
        """Whether the run has reached its `until` position and waits for the decision, in memory and with its slots."""
        return self.report.at_until

    @property
    def position(self) -> int:
        """The position of the report."""
        return self.report.position


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The up-call after the end of a run. Its slots are idle or lost.

    Attributes:
        job: The id of the job.
        attempt: The number of the run within its job.
        reason: How the run ended.
        position: The position that the run had reached.
        resume_position: The position from which the job would continue; 0: from the beginning.
        cause: What the training process, its agent or the engine knows about the end; None: nothing is known.
        mode: The mode of the run.
    """

    job: str
    attempt: int
    reason: RunEndReason
    position: int
    resume_position: int
    cause: Reason | None = None
    mode: RunMode = RunMode.TRAIN


@dataclass(frozen=True, slots=True)
class JobCreated:
    """The up-call for a created or forked job that has its configuration and is idle.

    Attributes:
        job: The id of the job.
    """

    job: str


@dataclass(frozen=True, slots=True)
class GeneratorExhausted:
    """The up-call for a job that could not be created, because the generator has no further configuration.

    Attributes:
        job: The id that `create_job` returned; the job does not exist.
    """

    job: str


@dataclass(frozen=True, slots=True)
class PredictionReady:
    """The up-call with the answer to `Cluster.predict`.

    Attributes:
        ticket: The ticket of the request.
        job: The id of the job.
        result: A `hopyard.predictor.Prediction`, or None if there is an error.
        error: Why there is no prediction; empty if there is one.
    """

    ticket: str
    job: str
    result: Any = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class AnswerReady:
    """The up-call with the answer to `Cluster.ask` or `Cluster.amend_run`.

    Attributes:
        ticket: The ticket of the request.
        result: The solver's result; for `amend_run` a mapping with `accepted` and `position`; None if there is an
            error.
        error: Why there is no result; empty if there is one.
    """

    ticket: str
    result: Any = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class RequestMade:
    """The up-call for a client's request to train a configuration to a position.

    Attributes:
        ticket: Identifies the client's request.
        hyperparameters: The configuration.
        position: The position to which the client wants it trained.
        job: The id of the job that was created for the request. It is idle, is complete at `position`, and is not one
            of the experiment's allowed number of jobs. There is no `JobCreated` for it.
        more: Number of requests of the same call of the client that follow. A policy can wait for the last one (0) and
            then process all of them. If the scheduler crashes between them, fewer follow.
    """

    ticket: str
    hyperparameters: Hyperparameters
    position: int
    job: str = ""
    more: int = 0


@dataclass(frozen=True, slots=True)
class ShareChange:
    """The up-call after a change of the number of slots that the experiment may hold.

    Attributes:
        slots: The new number.
        deadline: If the experiment holds more slots than that, the time (seconds since the Unix epoch) after which the engine
            suspends runs; None: it does not hold too many.
    """

    slots: int
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class SlotsChange:
    """The up-call after a change of the slots of the experiment, or of the nodes that have its partitions.

    Attributes:
        joined: The ids of the added slots.
        lost: The ids of the removed slots.
    """

    joined: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExperimentChange:
    """The up-call after a change of the experiment, or of an experiment of the group.

    Attributes:
        change: What happened: "extended" (more jobs, positions or time are allowed), "target" (it changed), "paused", "resumed",
            and only in a group "joined" (a new experiment joined the group) and "ended" (one of its experiments ended).
        experiment: The id of the experiment.
    """

    change: Literal["extended", "target", "paused", "resumed", "joined", "ended"]
    experiment: str = ""


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The up-call at the time that was requested with `Cluster.wake_at`.

    Attributes:
        ticket: The ticket that `wake_at` returned.
    """

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
    | SlotsChange
    | ExperimentChange
    | TimerFired
)
