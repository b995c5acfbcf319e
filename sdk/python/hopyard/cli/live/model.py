"""The data of the live view: the newest state of an experiment, updated by changes. The model uses no terminal and no clock."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.cells import cell_len

from hopyard._common import formatting
from hopyard.cli.live.estimate import CompletionEstimate, RemainingWork, rounded
from hopyard.cli.live.incidents import Incidents
from hopyard.client.display.job_looks import JobLook, look_of
from hopyard.client.display.outcome import lost_progress, metric_trouble, note_metrics, planned_jobs
from hopyard.client.display.short_reason import FailedAttempt, failed_attempt, grouped_failures, short_reason
from hopyard.client.types import (
    Change,
    Experiment,
    ExperimentState,
    Job,
    JobGone,
    JobReport,
    JobState,
    Node,
    Point,
)

RATE_SECONDS: Final = 10.0
"""Length in seconds of the window over which the rate of reports is averaged."""

SILENT_SECONDS: Final = 8.0
"""Seconds without an answer after which the cluster is shown as unreachable. It is polled every two seconds."""

_CURVE_LIMIT: Final = 512
"""Maximum number of points of a curve. Beyond it, every other point is dropped, since a curve is drawn only a few characters wide."""


_WAITING: Final = frozenset({JobState.CREATING, JobState.PENDING, JobState.SUSPENDED, JobState.HELD, JobState.RUNNING})


class LiveModel:
    """The newest state of one experiment, its jobs and their learning curves, for the live view.

    Args:
        source: Name of the experiment in messages until its state is known.
        slots: Number of slots of the cluster; None: unknown.
        server: Address of the scheduler; empty: a local cluster.
    """

    def __init__(self, source: str = "", *, slots: int | None = None, server: str = "") -> None:
        self.source = source
        self.slots = slots
        self.server = server
        self.note = ""
        self.trouble = ""
        self.experiment: Experiment | None = None
        self.jobs: dict[str, Job] = {}
        self.metrics: dict[str, bool] = {}
        self.varied: set[str] = set()
        """Names of the hyperparameters of which two jobs have had different values, or that only some of the jobs have."""
        self.widths: dict[str, int] = {}
        """For each hyperparameter the largest number of characters that any of its values has had as text."""
        self._first_values: dict[str, Any] | None = None
        self._estimate = CompletionEstimate()
        self._furthest = 0
        self._curves: dict[str, list[tuple[int, float]]] = {}
        self._reports: deque[float] = deque()
        self._since: float | None = None
        self._experiment_at = 0.0
        self._least_elapsed = 0.0
        self._heard: float | None = None
        self.reports = 0
        self.incidents = Incidents()
        self.evaluated = False
        """Whether a partial evaluation was reported. Before that, jobs on partitioned data may lack the metric."""
        self.starts_over = False
        """Whether a job lost its progress when it left its slot, because its program had saved nothing."""

    def apply(self, change: Change, now: float) -> None:
        """Update the model with a change of the experiment that was received at `now` (monotonic seconds)."""
        if self._since is None:
            self._since = now
        self.heard(now)
        match change:
            case Experiment():
                self._least_elapsed = self.elapsed(now)
                self.experiment = change
                self._experiment_at = now
                if change.state is not ExperimentState.RUNNING:
                    self._estimate.interrupt()
            case Job():
                self._note_values(change, self.jobs.get(change.id))
                self.incidents.note_job(self.jobs.get(change.id), change)
                self.jobs[change.id] = change
                self._furthest = max(self._furthest, change.position)
                self.starts_over = self.starts_over or lost_progress(change)
                self._note_position(change.id, change.position, now)
            case JobGone(job=job):
                self.jobs.pop(job, None)
            case JobReport(job=job, report=report):
                self.reports += 1
                if not report.part:
                    self._note_position(job, report.position, now)
                self._reports.append(now)
                note_metrics(self.metrics, report.metrics)
                self.evaluated = self.evaluated or bool(report.part)
                value = report.metrics.get(self.experiment.metric.name) if self.experiment else None
                if value is not None and not report.part:
                    self._add(job, report.position, value)

    def load_metrics(self, seen: Mapping[str, bool]) -> None:
        """Add the metrics that were reported before this view began. `seen` maps each name to whether any value was finite."""
        for name, finite in seen.items():
            self.metrics[name] = self.metrics.get(name, False) or finite

    def load_curve(self, job: str, points: Iterable[Point]) -> None:
        """Add points of the learning curve of the job `job` that were reported before this view began."""
        for point in points:
            self._add(job, point.position, point.value)

    def curve(self, job: str) -> Sequence[float]:
        """Return the values of the learning curve of the job `job`, ordered by position; empty: none was received."""
        return [value for _, value in self._curves.get(job, ())]

    def rate(self, now: float) -> float:
        """Return the number of reports per second over the 10 seconds before `now` (monotonic seconds).

        If the model received its first change less than 10 seconds before `now`, the rate is over the time since that change,
        but at least one second. Before the first change the rate is 0.
        """
        while self._reports and self._reports[0] <= now - RATE_SECONDS:
            self._reports.popleft()
        if self._since is None:
            return 0.0
        return len(self._reports) / min(RATE_SECONDS, max(1.0, now - self._since))

    def elapsed(self, now: float) -> float:
        """Return the seconds for which the experiment has run until `now` (monotonic seconds), without pauses; 0 while unknown.

        It never decreases. The clock of the experiment stands while it is PAUSING or ENDING, too.
        """
        return max(self._running(now), self._least_elapsed)

    def _running(self, now: float) -> float:
        if self.experiment is None:
            return 0.0
        since = now - self._experiment_at if self.experiment.state is ExperimentState.RUNNING else 0.0
        return self.experiment.running_seconds + max(0.0, since)

    @property
    def best_value(self) -> float | None:
        """The best value of the metric so far, or None if there is no finite one."""
        value = self.experiment.best_value if self.experiment and self.experiment.best_job else None
        return value if value is not None and math.isfinite(value) else None

    @property
    def max_position(self) -> int | None:
        """The position at which jobs are complete, or None if the experiment has no `max_iterations`.

        It is not below the position of any job, which in an extended experiment may exceed the limit in the file.
        """
        given = self._stop.get("max_iterations")
        return max(int(given), self._furthest) if isinstance(given, int | float) and given > 0 else None

    @property
    def total_jobs(self) -> int:
        """The number of jobs that the experiment will have (`planned_jobs`)."""
        return planned_jobs(self.experiment, len(self.jobs)) if self.experiment is not None else len(self.jobs)

    @property
    def ended_jobs(self) -> int:
        """The number of jobs that are COMPLETED, TERMINATED or FAILED."""
        return sum(job.state.ended for job in self.jobs.values())

    def hyperparameters(self) -> list[str]:
        """Return the names of the hyperparameters that vary between jobs, sorted; those of all jobs if none varies."""
        return sorted(self.varied or self.widths)

    def length(self, job: Job) -> int | None:
        """Return the position at which `job` is complete, or None without a limit.

        For a COMPLETED job this is `max_iterations`, or its own position if that is higher.
        """
        given = self._stop.get("max_iterations")
        if job.state is JobState.COMPLETED and isinstance(given, int | float) and given > 0:
            return max(int(given), job.position)
        return self.max_position

    def heard(self, now: float) -> None:
        """Record that the cluster answered at `now` (monotonic seconds)."""
        self._heard = now

    def apply_nodes(self, nodes: Iterable[Node]) -> None:
        """Update the model with the present nodes of the cluster."""
        self.incidents.note_nodes(nodes, self.jobs.values())

    def silence(self, now: float) -> str:
        """Return a message if the cluster has not answered for 8 seconds before `now` (monotonic seconds), else an empty str.

        The message says since when there is no answer, and, if the cluster is not that of the command itself, what to do.
        """
        if self._heard is None or now - self._heard < SILENT_SECONDS:
            return ""
        since = formatting.duration(now - self._heard)
        if not self.server:
            return f"no answer from the cluster for {since}"
        return (
            f"connection to the cluster at {self.server} lost {since} ago, trying again: start it with hopyard up if it is stopped; "
            "Ctrl-C twice leaves; all else shown is from before"
        )

    def remaining(self, now: float) -> str:
        """Return a text with the estimated remaining time of the experiment, or with the time until `max_time` as an upper bound.

        Empty: unknown, or the experiment is not running. Between two reports the estimate never increases. `now` is in monotonic
        seconds.
        """
        if self.experiment is None or self.experiment.state is not ExperimentState.RUNNING or self.silence(now):
            return ""
        estimate, budget = self.time_left(now), self.budget_left(now)
        if estimate is not None and (budget is None or estimate <= budget):
            return f"about {formatting.duration(rounded(estimate)).removesuffix(' 00s').removesuffix(' 00m')} left"
        return f"at most {formatting.duration(budget)} left" if budget is not None else ""

    def budget_left(self, now: float) -> float | None:
        """Return the seconds from `now` (monotonic seconds) until `max_time` ends the experiment, at least 0; None: no limit.

        While the experiment is paused, this is the time left after its continuation.
        """
        limit = self._stop.get("max_time")
        return max(0.0, limit - self._running(now)) if isinstance(limit, int | float) else None

    def time_left(self, now: float) -> float | None:
        """Estimate the seconds from `now` (monotonic seconds) until all jobs are trained, by the rule of `CompletionEstimate`.

        None: no estimate is possible. Besides a measured pace, the estimate requires `stop.jobs`, `stop.max_iterations`, the policy
        `default` and no target, since otherwise jobs may end early.
        """
        return None if self._remaining_work() is None else self._estimate.left(now)

    def _remaining_work(self) -> RemainingWork | None:
        """Return the training that remains; None: it cannot be known, since jobs may end early or have no limit.

        Jobs that are not created yet are assumed to have the average length of the ended ones.
        """
        wanted, longest = self._stop.get("jobs"), self.max_position
        if self._ends_early or not isinstance(wanted, int) or longest is None:
            return None
        ended = [job.position for job in self.jobs.values() if job.state.ended and job.state is not JobState.FAILED]
        usual = sum(ended) / len(ended) if ended else float(longest)
        rest = [max(0.0, usual - job.position) for job in self.jobs.values() if not job.state.ended]
        missing = max(0, wanted - len(self.jobs))
        return RemainingWork(
            iterations=sum(rest) + missing * usual,
            longest=usual if missing else max(rest, default=0.0),
            running=sum(job.state.live for job in self.jobs.values()),
        )

    def _note_position(self, job: str, position: int, now: float) -> None:
        if self._estimate.observe(job, position, now) and (work := self._remaining_work()) is not None:
            self._estimate.measure(work, now)

    def _note_values(self, job: Job, before: Job | None) -> None:
        """Update `varied` and `widths` with the hyperparameters of a job; `before` is its previous state, None: it is new."""
        values = job.hyperparameters
        if not values or (before is not None and before.hyperparameters == values):
            return
        for name, given in values.items():
            self.widths[name] = max(self.widths.get(name, 0), cell_len(formatting.value(given)))
        if self._first_values is None:
            self._first_values = dict(values)
            return
        first = self._first_values
        self.varied.update(name for name in first.keys() | values.keys() if first.get(name) != values.get(name))

    @property
    def _ends_early(self) -> bool:
        """Whether the policy or a target may end jobs before they are fully trained, which makes an estimate impossible."""
        if self.experiment is None:
            return False
        policy = self.experiment.spec.get("policy") or {}
        name = (policy.get("command") or policy.get("name")) if isinstance(policy, Mapping) else policy
        return name not in (None, "default") or self.experiment.metric.target is not None

    def slots_in_use(self) -> tuple[int, int]:
        """Return the number of slots with a run of the experiment, and this number plus the idle slots reserved for it."""
        busy = sum(len(job.slots) for job in self.jobs.values() if job.state.live)
        held = self.experiment.slots if self.experiment else 0
        return busy, max(busy, held)

    def best(self) -> Job | None:
        """Return the job with the best value so far, or None if there is none or its state was not received yet."""
        return self.jobs.get(self.experiment.best_job) if self.experiment and self.experiment.best_job else None

    def without_best(self) -> str:
        """Return a text on why there is no best value: no report yet, or no finite value of the experiment's metric."""
        if self.experiment is not None and self.experiment.spec.get("data") and not self.evaluated:
            return "no evaluation yet" if self.metrics else "no report yet"
        trouble = metric_trouble(self.experiment.metric.name, self.metrics) if self.experiment else ""
        return trouble or "no report yet"

    def waits(self) -> list[tuple[JobState, int, str]]:
        """Return the reasons why jobs wait, the most frequent first, each as job state, number of jobs, and short reason.

        Jobs that are STARTING, and those that try again after a failure (`retried`), are omitted.
        """
        waiting = (
            job for job in self.jobs.values() if job.state in _WAITING and job.reason and failed_attempt(job) is None
        )
        lines = Counter((job.state, short_reason(job)) for job in waiting)
        return [(state, amount, reason) for (state, reason), amount in lines.most_common()]

    def retried(self) -> list[FailedAttempt]:
        """Return the last failures of the jobs that try again and have reported nothing new since, in order of the jobs."""
        return [failed for job in self.jobs.values() if (failed := failed_attempt(job)) is not None]

    def failures(self) -> list[tuple[JobState, int, str]]:
        """Return why jobs failed, the most frequent first, each as job state, number of jobs, and short reason.

        Reasons that differ only in numbers count as one.
        """
        found = [(JobState.FAILED, len(names), reason) for reason, names in grouped_failures(self.jobs.values())]
        return sorted(found, key=lambda one: -one[1])

    def counts(self) -> dict[JobLook, int]:
        """Return the number of jobs of each look, in the order of `JobLook.rank`. Looks without jobs are omitted."""
        counted = Counter(look_of(job.state, job.reason_code) for job in self.jobs.values())
        return dict(sorted(counted.items(), key=lambda item: item[0].rank))

    def merit(self, job: Job) -> float:
        """Return a sort key for `job`: better jobs have lower keys, and jobs without a finite value the highest."""
        if job.best_value is None or not math.isfinite(job.best_value):
            return math.inf
        maximise = self.experiment is None or self.experiment.metric.mode == "max"
        return -job.best_value if maximise else job.best_value

    @property
    def _stop(self) -> Mapping[str, Any]:
        stop = self.experiment.spec.get("stop") if self.experiment else None
        return stop if isinstance(stop, Mapping) else {}

    def _add(self, job: str, position: int, value: float) -> None:
        curve = self._curves.setdefault(job, [])
        # A run that resumed from a snapshot repeats reports; the first report of a position counts.
        if curve and position <= curve[-1][0]:
            return
        curve.append((position, value))
        if len(curve) > _CURVE_LIMIT:
            # Every second point from the end, so that the newest point is kept.
            self._curves[job] = curve[::-2][::-1]
