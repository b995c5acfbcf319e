"""Up-calls: what a policy is told and asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from hopyard.policy.vocabulary.values import Hyperparameters, Report, RunEndReason, RunMode


@dataclass(frozen=True, slots=True)
class AllocateJobs:
    """Machines are idle within this experiment's share."""


@dataclass(frozen=True, slots=True)
class ApplicationStat:
    """A job reported statistics at a position above its high-water mark; or, with mode PROFILE, what it found out."""

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
    may have. There is no `JobCreated` for it. `more` of the same call follow, unless the scheduler dies between them: a policy may
    wait with what it does for all of them until the last one (0).
    """

    ticket: str
    hyperparameters: Hyperparameters
    position: int
    job: str = ""
    more: int = 0


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
