"""Up-calls: the events and questions that a policy receives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from hopyard.policy.vocabulary.reasons import Reason
from hopyard.policy.vocabulary.values import Hyperparameters, Report, RunEndReason, RunMode


@dataclass(frozen=True, slots=True)
class AllocateJobs:
    """Slots are idle within this experiment's share."""


@dataclass(frozen=True, slots=True)
class ApplicationStat:
    """A job reported statistics at a position above its high-water mark, or, with mode PROFILE, its measurement."""

    job: str
    report: Report
    input: str = ""
    mode: RunMode = RunMode.TRAIN


@dataclass(frozen=True, slots=True)
class IterationFinish:
    """A job finished an iteration. The answer contains a decision.

    `repeated` is True if an earlier attempt had reported this position before it was lost. This happens only at a run's
    `until`.
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
    """A run has ended.

    `resume_position` is the position from which the job would continue. `cause` is what the training process, its agent
    or the engine knows of the end; None: nothing.
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
    """A created job has its configuration and is idle."""

    job: str


@dataclass(frozen=True, slots=True)
class GeneratorExhausted:
    """A job could not be created because the generator has no further configuration."""

    job: str


@dataclass(frozen=True, slots=True)
class PredictionReady:
    """A prediction is available. `result` is a `hopyard.predictor.Prediction`, or None with an error."""

    ticket: str
    job: str
    result: Any = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class AnswerReady:
    """The answer to `ask` or `amend_run` is available. `result` is None with an error."""

    ticket: str
    result: Any = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class RequestMade:
    """A client requested a configuration trained to a position.

    `job` is the job that was created for it. The job is idle, is complete at the position, and does not count as one of
    the experiment's allowed jobs. There is no `JobCreated` for it. `more` is the number of requests of the same call
    that follow, unless the scheduler crashes between them. A policy can wait for the last one (0) and then process all
    of them.
    """

    ticket: str
    hyperparameters: Hyperparameters
    position: int
    job: str = ""
    more: int = 0


@dataclass(frozen=True, slots=True)
class ShareChange:
    """The experiment may now hold `slots` slots. Excess slots are taken at `deadline` (None: there are none)."""

    slots: int
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class SlotsChange:
    """The slots of the experiment changed, or other nodes than before hold its partitions."""

    joined: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExperimentChange:
    """The experiment or another one of its group changed. `experiment` names it; experiments join and end only in a group."""

    change: Literal["extended", "target", "paused", "resumed", "joined", "ended"]
    experiment: str = ""


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The time of a `wake_at` was reached."""

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
