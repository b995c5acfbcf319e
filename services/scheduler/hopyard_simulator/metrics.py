"""The measurements of a simulation: their collection, and the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

from hopyard.policy.vocabulary import ExperimentState, JobState, Report, RunEndReason, RunKey, RunMode
from hopyard_engine.core.actions.experiment_end import WITH_EXPERIMENT
from hopyard_engine.core.effects import Start
from hopyard_engine.core.handlers.run_messages import end_reason
from hopyard_engine.core.state.entities import Job, Run
from hopyard_engine.core.state.hop_counts import HopCounts
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.types import EarlierTrial
from hopyard_simulator.group import ExperimentResult

POOLS: Final = ("promising", "opportunistic", "suspended", "pending")
_MOST_POINTS: Final = 1000
_LEFT: Final = (RunEndReason.UNTIL, RunEndReason.SUSPENDED, RunEndReason.PREEMPTED)


@dataclass(frozen=True, slots=True)
class RunInterval:
    """One process of a run on a slot. Times are virtual seconds since the beginning of the simulation.

    Attributes:
        slot: The id of the slot.
        job: The id of the job.
        attempt: The number of the run within its job.
        start: When the process started.
        end: When it ended.
        trained: The number of iterations that it trained.
        reason: Why it ended: the value of a `RunEndReason`.
        mode: Whether it trained, evaluated or profiled: the value of a `RunMode`.
        position: The position of its job at which it started.
        partition: The name of the data partition that it visited; empty: none.
        began: When it had the job's state and began its work; None: it ended before.
        got: The bytes of the job's snapshot that were moved to its node for it; 0: none. A simulated snapshot takes one byte.
        from_store: Whether these bytes came from the store; otherwise from another node.
    """

    slot: str
    job: str
    attempt: int
    start: float
    end: float
    trained: int
    reason: str
    mode: str = RunMode.TRAIN.value
    position: int = 0
    partition: str = ""
    began: float | None = None
    got: int = 0
    from_store: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a simulation. Times are virtual seconds since its beginning.

    "With `details`" marks values that are None unless the simulation was started with `details`.

    Attributes:
        policy: The policy's name.
        parameters: The parameters of the policy, and the given terms of the experiment, such as `kill_threshold`. A name that
            both have is given in full: `policy.NAME` or `experiment.NAME`.
        predictor: The name of the predictor; None: the policy requested no prediction.
        metric: The metric's name.
        mode: Whether larger (max) or smaller (min) values are better.
        R: The position at which jobs are complete.
        slots: The number of slots.
        seed: Seed of the policy and the faults.
        order_seed: Seed of the order of the configurations; None: the workload's order.
        target: The target value of the metric; None: none.
        time_to_target: When the first report reached the target; None: none did.
        best: The best finite report; None: there was none.
        best_job: The id of the job with the best report; None: there was none.
        time: When the search ended.
        job_seconds: Slot-seconds used by runs.
        jobs_started: Number of jobs with at least one run.
        jobs_terminated: Number of jobs that were terminated before the end of the search.
        suspends: Number of training runs that left their slots while their jobs could train further later: for other jobs, on a
            rung, or at the end of the search, such as the run that reached the target. Lost runs do not count.
        iterations: Number of trained iterations, including repeated ones. Each iteration ends with a report.
        utilisation: `job_seconds` divided by the available slot-seconds; 0 if none were available.
        first_at_R: When the first job reached the position R; None: none did.
        jobs_at_R: For each job that reached the position R: the time, and the number of jobs that have reached it by
            then.
        promotions: How often the policy increased the position up to which a job trains. It is 0 with data
            partitions, where the policy orders each unit separately.
        pools: `names`, and `points` with a time and a number for each name; at most about 1,000 points. "promising" are the
            slots of running jobs to which the policy gave a priority above 0, "opportunistic" those of the other running
            jobs; "suspended" and "pending" are numbers of jobs.
        reason: Why the search ended, as a sentence.
        reason_code: The code of the reason; None: there is no reason.
        events: Number of events that the core handled.
        predictions: Number of the policy's requests for predictions.
        predictions_failed: Number of these requests that were answered with an error.
        note: The policy's remarks on the experiment; empty: none.
        runs: Every process of every run, with the data partition that it visited; with `details`.
        states: The final state of every job by id (COMPLETED, TERMINATED, SUSPENDED, ...); with `details`.
        curves: By job, a list [time, position, value] for every reported position, of its last report; with `details`.
        labels: By job, a list [time, priority] for every priority that the policy set; with `details`.
        held: By data partition, the nodes that have a replica; with `details` and data.
        moved: A list [time, from node to node, from the store, to the store] whenever one of the numbers has changed: the bytes of
            snapshots that were moved until then. A simulated snapshot takes one byte. With `details` and data.
        confidences: A list [time, share in slots, descending probabilities] for each point of `pools` at which the
            policy has estimates. A probability is the policy's estimate that a job reaches the policy's goal, such as
            the target. With `details`.
        trained: The trained trials, for later searches (`simulate(..., earlier=...)`); with `details`.
        experiments: In a group, the result of each experiment by id; None: there is only one experiment.
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
    held: Mapping[str, tuple[str, ...]] | None = None
    moved: list[tuple[float, int, int, int]] | None = None
    trained: tuple[EarlierTrial, ...] | None = None
    experiments: Mapping[str, ExperimentResult] | None = None

    def plain(self) -> dict[str, Any]:
        """Return the result as JSON values.

        Values that are None because they were not requested with `details` are omitted. `trained` is always omitted,
        because `curves` contains the same data.
        """
        details = ("runs", "states", "curves", "labels", "confidences", "held", "moved", "experiments")
        found = asdict(replace(self, trained=None))
        del found["trained"]
        return {name: value for name, value in found.items() if value is not None or name not in details}


@dataclass(slots=True)
class _Open:
    start: float
    order: Start
    began: float | None = None
    got: int = 0
    from_store: bool = False


@dataclass(slots=True)
class Measurements:
    """Collects the measurements of one simulation. Times are virtual seconds since the beginning.

    Attributes:
        max_position: The position at which jobs are complete.
        details: True to collect `runs`, `curves`, `labels`, `confidences` and `moved` too.
        job_seconds: Slot-seconds used by ended runs.
        iterations: Number of trained iterations of ended runs.
        promotions: How often the position up to which a job trains was increased.
        suspends: Number of training runs that left their slots while their jobs could train further later.
        terminated: Number of jobs that were terminated before the end of the search; None: the search has not ended.
        time_to_target: When the first report reached the target; None: none did.
        at_max: For each job that reached `max_position`: the time and the number of such jobs.
        runs: The ended processes.
        curves: By job, a list [time, position, value] for every reported position, of its last report.
        pools: Points: a time, the slots of promising and of opportunistic jobs, and the numbers of suspended and of pending jobs
            (`POOLS`).
        labels: By job, a list [time, priority] for every priority that the policy set.
        confidences: Points: a time, the share in slots, and the descending probabilities with which the policy expects
            jobs to reach its goal.
        moved: Tuples of a time and the bytes of snapshots that were moved from node to node, from the store and to it until then.
    """

    max_position: int
    details: bool = False
    job_seconds: float = 0.0
    iterations: int = 0
    promotions: int = 0
    suspends: int = 0
    terminated: int | None = None
    time_to_target: float | None = None
    at_max: list[tuple[float, int]] = field(default_factory=list)
    runs: list[RunInterval] = field(default_factory=list)
    curves: dict[str, list[list[float | int | None]]] = field(default_factory=dict)
    pools: list[tuple[float, ...]] = field(default_factory=list)
    labels: dict[str, list[list[float]]] = field(default_factory=dict)
    confidences: list[tuple[float, int, list[float]]] = field(default_factory=list)
    moved: list[tuple[float, int, int, int]] = field(default_factory=list)
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
        """Record that the number of available slots changes by `change` at the virtual time `now`, in seconds."""
        self._capacity += self._slots * (now - self._since)
        self._slots += change
        self._since = now

    def run_begins(self, key: RunKey, start: Start, now: float) -> None:
        """Record the start of a process on a slot.

        Args:
            key: The key of the process: job, attempt and rank.
            start: The start command, which names the slot and the position up to which the run trains.
            now: The time in virtual seconds since the beginning of the simulation.
        """
        self._begun[key] = _Open(now, start)
        if key.rank == 0:
            self._started.add(key.job)
            self._sent_on(key.job, start.until)

    def run_loaded(self, key: RunKey, now: float, got: int, *, from_store: bool) -> None:
        """Record that a process has its job's state and begins its work.

        Args:
            key: The key of the process, which `run_begins` must have recorded.
            now: The time in virtual seconds since the beginning of the simulation.
            got: The bytes of the snapshot that were moved to its node; 0: none.
            from_store: Whether these bytes came from the store.
        """
        begun = self._begun[key]
        begun.began, begun.got, begun.from_store = now, got, from_store

    def amended(self, job: str, until: int | None) -> None:
        """Record that the policy ordered a running job to train up to the position `until`; None: the order changes no position."""
        if until is not None:
            self._sent_on(job, until)

    def _sent_on(self, job: str, until: int) -> None:
        before = self._until.get(job, 0)
        self.promotions += 0 < before < until
        self._until[job] = max(before, until)

    def run_over(self, key: RunKey, now: float, trained: int, reason: RunEndReason) -> None:
        """Record the end of a process on a slot.

        Args:
            key: The key of the process, which `run_begins` must have recorded.
            now: The time in virtual seconds since the beginning of the simulation.
            trained: The number of iterations that it trained.
            reason: Why it ended.
        """
        begun = self._begun.pop(key)
        self.job_seconds += now - begun.start
        self.iterations += trained
        if self.details:
            order = begun.order
            self.runs.append(
                RunInterval(
                    order.slot,
                    key.job,
                    key.attempt,
                    begun.start,
                    now,
                    trained,
                    reason.value,
                    order.mode.value,
                    order.snapshot.position if order.snapshot is not None else 0,
                    order.input,
                    begun.began,
                    begun.got,
                    begun.from_store,
                )
            )

    def run_left(self, job: Job, run: Run) -> None:
        """Count a run of which all processes have ended in `suspends` if its job can train further.

        The end of the search does not matter: it completes the job that reached the target, at whatever position.
        """
        ended = run.ended
        if ended is not None and run.mode is RunMode.TRAIN and end_reason(run, ended) in _LEFT:
            self.suspends += ended.position < job.max_position and not (run.finished or ended.finished)

    # --------------------------------------------------------------------------------------------------------- reports

    def reported(self, job: str, report: Report, metric: str, now: float, *, reached: bool) -> None:
        """Record an accepted report.

        Args:
            job: The id of the job.
            report: The report.
            metric: The name of the metric to record.
            now: The time in virtual seconds since the beginning of the simulation.
            reached: True if the report reached the target.
        """
        value = report.metrics.get(metric, math.nan)
        if reached and self.time_to_target is None:
            self.time_to_target = now
        if report.position >= self.max_position and job not in self._done:
            self._done.add(job)
            self.at_max.append((now, len(self._done)))
        if self.details:
            curve = self.curves.setdefault(job, [])
            if curve and curve[-1][1] == report.position:  # The position was trained, and is evaluated now.
                curve.pop()
            curve.append([now, report.position, value if math.isfinite(value) else None])

    def hopped(self, hops: HopCounts, now: float) -> None:
        """Record the bytes of snapshots that were moved until the virtual time `now`, in seconds, if they have changed."""
        amounts = (hops.direct_bytes, hops.fetched_bytes, hops.stored_bytes)
        if self.details and amounts != (self.moved[-1][1:] if self.moved else (0, 0, 0)):
            self.moved.append((now, *amounts))

    def labelled(self, job: Job, now: float) -> None:
        """Record the priority of a job at the virtual time `now`, in seconds, if it is set and differs from the last recorded one."""
        known = self.labels.get(job.id)
        if job.priority is not None and (known is None or known[-1][1] != job.priority):
            self.labels.setdefault(job.id, []).append([now, job.priority])

    def look(self, stream: Stream, now: float, confidences: Callable[[], Mapping[str, float]]) -> None:
        """Record the sizes of `POOLS` (promising, ..., pending; see `pools`) and, with `details`, the policy's estimates.

        Most calls record nothing: the interval between two points grows so that at most about `_MOST_POINTS` remain.
        The first call after the end of the search also counts the terminated jobs.

        Args:
            stream: The simulated stream.
            now: The time in virtual seconds since the beginning of the simulation.
            confidences: Returns, by job, the policy's estimate of the probability that the job reaches the policy's
                goal.
        """
        experiment = stream.founder
        if experiment.state is not ExperimentState.RUNNING and self.terminated is None and experiment.final is not None:
            ended = [job for job in stream.jobs.values() if job.state is JobState.TERMINATED]
            # The other jobs ended together with the search.
            self.terminated = sum(job.reason is None or job.reason.code not in WITH_EXPERIMENT for job in ended)
        if now < self._next_look:
            return
        states = stream.states
        held = sum(len(run.slots) for run in stream.live.values())
        promising = sum(len(run.slots) for name, run in stream.live.items() if (stream.jobs[name].priority or 0.0) > 0)
        waiting = states.get(JobState.SUSPENDED, 0), states.get(JobState.PENDING, 0)
        self.pools.append((now, promising, held - promising, *waiting))
        if self.details and stream.share and (chances := confidences()):
            self.confidences.append((now, stream.share, sorted(chances.values(), reverse=True)))
        if len(self.pools) > _MOST_POINTS:
            self.pools, self.confidences = self.pools[::2], self.confidences[::2]
            self._step = max(2 * self._step, (self.pools[-1][0] - self.pools[0][0]) / (_MOST_POINTS / 2))
        self._next_look = now + self._step

    # ------------------------------------------------------------------------------------------------------------ result

    def closed(self, now: float) -> tuple[float, int]:
        """Record that all running processes end at the virtual time `now`, in seconds.

        Returns:
            The slot-seconds that were available in the whole simulation, and the number of jobs that were started.
        """
        for key in list(self._begun):
            self.run_over(key, now, 0, RunEndReason.TERMINATED)
        self.slots_changed(now, 0)
        return self._capacity, len(self._started)
