"""Jobs with their snapshots and reports as the client returns them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hopyard._common import formatting
from hopyard.client.display import html
from hopyard.client.display.job_looks import look_of
from hopyard.policy.vocabulary import JobState, Report
from hopyard.policy.vocabulary.reasons import Argument, ReasonCode


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The training state of a job at one position, named by the SHA-256 of its packed bytes.

    Attributes:
        job: Id of the job.
        position: The position at which it was taken.
        sha256: SHA-256 of the packed bytes, lower-case hexadecimal.
        size_bytes: Size of the packed bytes.
        provider: The mechanism that took it and can load it, such as "framework" or "criu".
        nodes: Ids of the nodes that have it on disk.
        stored: Whether the snapshot store has it.
    """

    job: str
    position: int
    sha256: str
    size_bytes: int = 0
    provider: str = "framework"
    nodes: tuple[str, ...] = ()
    stored: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """A job: the training of one configuration.

    Attributes:
        experiment: Id of the experiment.
        id: Id of the job, unique in the group of the experiment.
        state: The current state. In an ended experiment every job has ended: one that could be trained further is TERMINATED.
        reason: Why the job waits, failed or ended, as a sentence; empty while it trains, unless a run of it has failed and it has
            reported nothing new since.
        hyperparameters: The configuration: the value of each hyperparameter by name.
        position: How far its newest run has trained, in the experiment's unit.
        attempt: Number of runs so far, including the current one.
        slots: Ids of the slots of the current run, in order of the rank; empty: it does not run.
        priority: Order among the idle jobs, higher first; None: 0.
        parent: Id of the job whose snapshot this job started from (a fork); None: it is not a fork.
        fork_position: Position of that snapshot; 0: it is not a fork.
        best_value: Best value of the metric so far; None: no report with a finite value yet.
        best_position: Position of the best value; meaningless if `best_value` is None.
        last_value: Newest value of the metric; None: no report yet.
        seconds: Training time in seconds: the sum over its reports, without those that a run repeats after a loss.
        failures: Number of runs that failed because of an error in the user's code.
        suspends: Number of runs that ended as SUSPENDED or PREEMPTED.
        snapshots: The snapshots that exist.
        group: Id of the first experiment of the group, under which nodes store the job's logs.
        shared_position: Position up to which the job reuses results of other jobs, if beyond `position`; 0: none.
        reason_code: The code of the reason, for programs; None: no reason.
        reason_args: The arguments of the reason by name.
    """

    experiment: str
    id: str
    state: JobState
    reason: str = ""
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    position: int = 0
    attempt: int = 0
    slots: tuple[str, ...] = ()
    priority: float | None = None
    parent: str | None = None
    fork_position: int = 0
    best_value: float | None = None
    best_position: int = 0
    last_value: float | None = None
    seconds: float = 0.0
    failures: int = 0
    suspends: int = 0
    snapshots: tuple[Snapshot, ...] = ()
    group: str = ""
    shared_position: int = 0
    reason_code: ReasonCode | None = None
    reason_args: Mapping[str, Argument] = field(default_factory=dict)

    @property
    def reached(self) -> int:
        """The highest position for which the job has results, from its own training or from jobs with the same training; 0: none."""
        return max(self.position, self.shared_position)

    def __repr__(self) -> str:
        """Return id, state, position, best value and hyperparameters. `dataclasses.asdict` has all fields."""
        best = f", best {self._best}" if self.best_value is not None else ""
        values = f", {formatting.hyperparameters(self.hyperparameters)}" if self.hyperparameters else ""
        return f"<Job {self.id} of {self.experiment} {self.state.value} at {self.position}{best}{values}>"

    def _repr_html_(self) -> str:
        look = look_of(self.state, self.reason_code)
        fields = {"state": f"{look.symbol} {look.word} at {self.position}", "reason": self.reason}
        fields["best"] = self._best if self.best_value is not None else ""
        fields |= {name: formatting.value(given) for name, given in sorted(self.hyperparameters.items())}
        return html.card(f"Job {self.id} of {self.experiment}", fields, {"state": look.color})

    @property
    def _best(self) -> str:
        return f"{formatting.number(self.best_value)} at {self.best_position}"


@dataclass(frozen=True, slots=True)
class JobReport:
    """A report of a job, as `AsyncClient.watch` yields it.

    Attributes:
        job: Id of the job.
        report: The position, the metrics and the training time.
        at: When the report was made, by the clock of the node that trained, in seconds since the Unix epoch.
    """

    job: str
    report: Report
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class JobGone:
    """The notice that the job with the id `job` was removed from its experiment.

    The job was in the state CREATING, and the generator had no further configuration for it.
    """

    job: str


@dataclass(frozen=True, slots=True)
class Statistic:
    """A report of a job as AppStat stores it. Reports of older attempts and repeated reports of the same training are not stored.

    Attributes:
        job: Id of the job.
        attempt: Number of the run that sent the report.
        report: The position, the metrics and the training time.
        at: When the report was made, by the clock of the node that trained, in seconds since the Unix epoch.
    """

    job: str
    attempt: int
    report: Report
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a learning curve: the value of one metric at a position.

    Attributes:
        position: The position, in the experiment's unit.
        value: Value of the metric. Partial evaluations at one position are averaged, weighted by their number of
            examples.
        seconds: Training time up to this position, in seconds.
    """

    position: int
    value: float
    seconds: float = 0.0
