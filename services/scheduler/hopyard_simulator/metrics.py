"""The measurements of a simulation, and its result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

from hopyard.policy.vocabulary import ExperimentState, JobState, Report, RunEndReason, RunKey
from hopyard_engine.core.effects import Start
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.types import EarlierTrial
from hopyard_simulator.group import ExperimentResult

POOLS: Final = ("promising", "opportunistic", "suspended", "pending")
_MOST_POINTS: Final = 1000


@dataclass(frozen=True, slots=True)
class RunInterval:
    """A run on a slot, in virtual seconds, with its trained iterations and the reason of its end (a `RunEndReason`)."""

    slot: str
    job: str
    attempt: int
    start: float
    end: float
    trained: int
    reason: str


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a simulation. Times are virtual seconds since its beginning.

    Attributes:
        policy: The policy's name.
        parameters: Its parameters.
        predictor: The predictor; None: no question was asked.
        metric: The metric's name.
        mode: Whether larger (max) or smaller (min) values are better.
        R: The position at which jobs are complete.
        slots: The number of slots.
        seed: Seed of the policy and the faults.
        order_seed: Seed of the order of the configurations; None: the workload's order.
        target: The target value of the metric; None: none.
        time_to_target: When the first job reached it; None: never.
        best: The best finite report; None: there was none.
        best_job: The job of that report.
        time: When the search ended.
        job_seconds: Slot-seconds used by runs.
        jobs_started: Jobs with at least one run.
        jobs_terminated: Jobs that ended before the search.
        suspends: Runs that left their slots while their jobs continue later.
        iterations: Trained iterations, including repeated ones; a report ends each.
        utilisation: `job_seconds` divided by the available slot-seconds.
        first_at_R: When the first job reached the max position; None: none did.
        jobs_at_R: (time, number of jobs that have reached the max position).
        promotions: How often a job was sent beyond its previous `until`; not counted with partitions, where every unit
            does this.
        pools: Job counts over time: `names`, and `points` of a time and a count for each name; at most about 1,000
            points. Promising jobs are running ones that the policy labelled with a priority above 0, opportunistic jobs
            the other running ones.
        reason: Why the search ended.
        reason_code: The code of the reason; None: there is no reason.
        events: Number of events that the core handled.
        predictions: Number of the policy's questions about curves.
        predictions_failed: Number of those that were answered with an error.
        note: The policy's remarks on the terms; empty: none.
        runs: Every run, with `details`.
        states: The final state of every job (COMPLETED, TERMINATED, SUSPENDED, ...), with `details`.
        curves: [time, position, value] of every report by job, with `details`.
        labels: [time, priority] of every label of the policy, by job, with `details`.
        confidences: [time, slots, descending probabilities] of the jobs that the policy has an estimate of, as often
            as `pools`, with `details`.
        trained: What it has trained, for later searches (`simulate(..., earlier=...)`), with `details`.
        experiments: In a group, the result of each experiment by id.
    """

    policy: str
    parameters: Mapping[str, Any]
    predictor: str | None
    metric: str
    mode: Literal["max", "min"]
    R: int
    slots: int
    seed: int
    order_seed: int | None
    target: float | None
    time_to_target: float | None
    best: float | None
    best_job: str | None
    time: float
    job_seconds: float
    jobs_started: int
    jobs_terminated: int
    suspends: int
    iterations: int
    utilisation: float
    first_at_R: float | None
    jobs_at_R: tuple[tuple[float, int], ...]
    promotions: int
    pools: Mapping[str, Any]
    reason: str
    reason_code: str | None
    events: int
    predictions: int
    predictions_failed: int
    note: str = ""
    runs: tuple[RunInterval, ...] | None = None
    states: Mapping[str, str] | None = None
    curves: Mapping[str, list[list[float | int | None]]] | None = None
    labels: Mapping[str, list[list[float]]] | None = None
    confidences: list[tuple[float, int, list[float]]] | None = None
    trained: tuple[EarlierTrial, ...] | None = None
    experiments: Mapping[str, ExperimentResult] | None = None

    def plain(self) -> dict[str, Any]:
        """Return the result as JSON values, without details that were not requested and without `trained`, which equals the curves."""
        details = ("runs", "states", "curves", "labels", "confidences", "experiments")
        found = asdict(replace(self, trained=None))
        del found["trained"]
        return {name: value for name, value in found.items() if value is not None or name not in details}


@dataclass(slots=True)
class _Open:
    start: float
    slot: str


@dataclass(slots=True)
class Measure:
    """Collects the measurements of one simulation."""

    max_position: int
    details: bool = False
    job_seconds: float = 0.0
    iterations: int = 0
    suspends: int = 0
    promotions: int = 0
    terminated: int | None = None
    time_to_target: float | None = None
    at_max: list[tuple[float, int]] = field(default_factory=list)
    runs: list[RunInterval] = field(default_factory=list)
    curves: dict[str, list[list[float | int | None]]] = field(default_factory=dict)
    pools: list[tuple[float, ...]] = field(default_factory=list)
    labels: dict[str, list[list[float]]] = field(default_factory=dict)
    confidences: list[tuple[float, int, list[float]]] = field(default_factory=list)
    _step: float = 0.0
    _next_look: float = 0.0
    _begun: dict[RunKey, _Open] = field(default_factory=dict)
    _started: set[str] = field(default_factory=set)
    _until: dict[str, int] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)
    _capacity: float = 0.0
    _slots: int = 0
    _since: float = 0.0

    # -------------------------------------------------------------------------------------------------------- slots

    def slots_changed(self, now: float, change: int) -> None:
        """Record that slots joined or left."""
        self._capacity += self._slots * (now - self._since)
        self._slots += change
        self._since = now

    def run_begins(self, key: RunKey, start: Start, now: float) -> None:
        """Record the start of a process on a slot."""
        self._begun[key] = _Open(now, start.slot)
        if key.rank == 0:
            self._started.add(key.job)
            self._sent_on(key.job, start.until)

    def amended(self, job: str, until: int | None) -> None:
        """Record a new end of a run."""
        if until is not None:
            self._sent_on(job, until)

    def _sent_on(self, job: str, until: int) -> None:
        before = self._until.get(job, 0)
        self.promotions += 0 < before < until
        self._until[job] = max(before, until)

    def run_over(self, key: RunKey, now: float, trained: int, reason: RunEndReason) -> None:
        """Record the end of a process on a slot."""
        begun = self._begun.pop(key)
        self.job_seconds += now - begun.start
        self.iterations += trained
        if self.details:
            self.runs.append(RunInterval(begun.slot, key.job, key.attempt, begun.start, now, trained, reason.value))

    # --------------------------------------------------------------------------------------------------------- reports

    def reported(self, job: str, report: Report, metric: str, now: float, *, reached: bool) -> None:
        """Record an accepted report, and whether it reached the target."""
        value = report.metrics.get(metric, math.nan)
        if reached and self.time_to_target is None:
            self.time_to_target = now
        if report.position >= self.max_position and job not in self._done:
            self._done.add(job)
            self.at_max.append((now, len(self._done)))
        if self.details:
            self.curves.setdefault(job, []).append([now, report.position, value if math.isfinite(value) else None])

    def labelled(self, job: Job, now: float) -> None:
        """Record a changed job, whose label may have changed."""
        known = self.labels.get(job.id)
        if job.priority is not None and (known is None or known[-1][1] != job.priority):
            self.labels.setdefault(job.id, []).append([now, job.priority])

    def look(self, stream: Stream, now: float, confidences: Callable[[], Mapping[str, float]]) -> None:
        """Notes how many jobs are where, and with details what the policy thinks of them; so rarely that the points stay few."""
        experiment = stream.founder
        if experiment.state is not ExperimentState.RUNNING and self.terminated is None and experiment.final is not None:
            ended = [job for job in stream.jobs.values() if job.state is JobState.TERMINATED]
            self.terminated = sum(
                job.reason != experiment.final[1] for job in ended
            )  # The others ended with the search.
        if now < self._next_look:
            return
        states = stream.states
        promising = sum((stream.jobs[name].priority or 0.0) > 0 for name in stream.live)
        waiting = states.get(JobState.SUSPENDED, 0), states.get(JobState.PENDING, 0)
        self.pools.append((now, promising, len(stream.live) - promising, *waiting))
        if self.details and stream.share and (chances := confidences()):
            self.confidences.append((now, stream.share, sorted(chances.values(), reverse=True)))
        if len(self.pools) > _MOST_POINTS:
            self.pools, self.confidences = self.pools[::2], self.confidences[::2]
            self._step = max(2 * self._step, (self.pools[-1][0] - self.pools[0][0]) / (_MOST_POINTS / 2))
        self._next_look = now + self._step

    # ------------------------------------------------------------------------------------------------------------ result

    def closed(self, now: float) -> tuple[float, int]:
        """Finish: end running runs now and return the available slot-seconds and the number of started jobs."""
        for key in list(self._begun):
            self.run_over(key, now, 0, RunEndReason.TERMINATED)
        self.slots_changed(now, 0)
        return self._capacity, len(self._started)
