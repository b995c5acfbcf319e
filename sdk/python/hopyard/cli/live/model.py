"""What the live view shows, kept up to date by an experiment's changes. No terminal, no clock of its own."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from hopyard._common import formatting
from hopyard._common.formatting import first_line
from hopyard.cli.outcome import BACK_AT_START, metric_trouble, note_metrics
from hopyard.client.types import Change, Experiment, ExperimentState, Job, JobGone, JobReport, JobState, Point

RATE_SECONDS: Final = 10.0
"""The rate of reports is an average over this long."""

SILENT_SECONDS: Final = 8.0
"""A cluster that has not answered for so long is said to be away. It is asked every few seconds."""

_CURVE_LIMIT: Final = 512
"""A curve beyond this many points loses every other one: it is drawn a few characters wide."""


_WAITING: Final = frozenset({JobState.CREATING, JobState.PENDING, JobState.SUSPENDED, JobState.HELD, JobState.RUNNING})


class LiveModel:
    """The newest state of one experiment, its jobs and their curves.

    Args:
        source: How messages call the experiment until its name is known.
        slots: Slots of the cluster, when known.
        server: Where it runs, for the header.
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
        self._curves: dict[str, list[tuple[int, float]]] = {}
        self._reports: deque[float] = deque()
        self._since: float | None = None
        self._experiment_at = 0.0
        self._heard: float | None = None
        self.reports = 0
        self.evaluated = False
        """Whether a part of an evaluation was reported: before that, jobs on partitioned data need not have the metric."""
        self.starts_over = False
        """Whether a job left its slot and lost what it had trained, since its program had saved nothing."""

    def apply(self, change: Change, now: float) -> None:
        """Take in one change that arrived at `now` (monotonic seconds)."""
        if self._since is None:
            self._since = now
        self.heard(now)
        match change:
            case Experiment():
                self.experiment = change
                self._experiment_at = now
            case Job():
                self.jobs[change.id] = change
                self.starts_over = self.starts_over or change.reason.startswith(BACK_AT_START)
            case JobGone(job=job):
                self.jobs.pop(job, None)
            case JobReport(job=job, report=report):
                self.reports += 1
                self._reports.append(now)
                note_metrics(self.metrics, report.metrics)
                self.evaluated = self.evaluated or bool(report.part)
                value = report.metrics.get(self.experiment.metric.name) if self.experiment else None
                if value is not None and not report.part:
                    self._add(job, report.position, value)

    def load_metrics(self, seen: Mapping[str, bool]) -> None:
        """Put in the names of the metrics reported before the watch began, and whether each was ever finite."""
        for name, finite in seen.items():
            self.metrics[name] = self.metrics.get(name, False) or finite

    def load_curve(self, job: str, points: Iterable[Point]) -> None:
        """Put in what was reported before the watch began."""
        for point in points:
            self._add(job, point.position, point.value)

    def curve(self, job: str) -> Sequence[float]:
        """The metric of a job's reports, in order of position."""
        return [value for _, value in self._curves.get(job, ())]

    def rate(self, now: float) -> float:
        """Reports a second, of late."""
        while self._reports and self._reports[0] <= now - RATE_SECONDS:
            self._reports.popleft()
        if self._since is None:
            return 0.0
        return len(self._reports) / min(RATE_SECONDS, max(1.0, now - self._since))

    def elapsed(self, now: float) -> float:
        """Seconds the experiment has run, pauses not counted."""
        if self.experiment is None:
            return 0.0
        running = self.experiment.running_seconds
        still = self.experiment.state.ended or self.experiment.state.name == "PAUSED"
        return running if still else running + max(0.0, now - self._experiment_at)

    @property
    def best_value(self) -> float | None:
        """The best value so far, if there is a finite one."""
        value = self.experiment.best_value if self.experiment and self.experiment.best_job else None
        return value if value is not None and math.isfinite(value) else None

    @property
    def max_position(self) -> int | None:
        """The position at which a job is complete, when the experiment names one."""
        given = self._stop.get("max_iterations")
        if not isinstance(given, int | float) or given <= 0:
            return None
        # An extended experiment's jobs go beyond what its file says.
        return max(int(given), *(job.position for job in self.jobs.values()), 0)

    def length(self, job: Job) -> int | None:
        """The position at which a job is complete, when the experiment names one: one that is, is where it stands."""
        given = self._stop.get("max_iterations")
        if job.state is JobState.COMPLETED and isinstance(given, int | float) and given > 0:
            return max(int(given), job.position)
        return self.max_position

    def heard(self, now: float) -> None:
        """The cluster has answered at `now` (monotonic seconds)."""
        self._heard = now

    def silence(self, now: float) -> str:
        """That the cluster has not answered of late, in words; empty: it has."""
        if self._heard is None or now - self._heard < SILENT_SECONDS:
            return ""
        return f"no answer from the cluster for {formatting.duration(now - self._heard)}"

    def remaining(self, now: float) -> str:
        """How long the experiment goes on, in words: an estimate, or at most what its `max_time` leaves; empty: who knows."""
        if self.experiment is None or self.experiment.state is not ExperimentState.RUNNING or self.silence(now):
            return ""
        estimate, budget = self.time_left(now), self.budget_left(now)
        if estimate is not None and (budget is None or estimate <= budget):
            return f"about {formatting.duration(estimate)} left"
        return f"at most {formatting.duration(budget)} left" if budget is not None else ""

    def budget_left(self, now: float) -> float | None:
        """Seconds until the experiment's `max_time` is over; None: it has none."""
        limit = self._stop.get("max_time")
        return max(0.0, limit - self.elapsed(now)) if isinstance(limit, int | float) else None

    def time_left(self, now: float) -> float | None:
        """Seconds until all jobs are trained, by the speed so far; None: there is nothing to go by.

        That is so under every policy but `default`, and with a target: who can say which jobs will be trained how far? Jobs still to
        come are taken to be as long as the ended ones were on average.
        """
        if self._ends_early:
            return None
        elapsed, wanted, longest = self.elapsed(now), self._stop.get("jobs"), self.max_position
        done = sum(job.position for job in self.jobs.values())
        if not isinstance(wanted, int) or longest is None or done <= 0 or elapsed < 1.0:
            return None
        ended = [job.position for job in self.jobs.values() if job.state.ended and job.state is not JobState.FAILED]
        usual = sum(ended) / len(ended) if ended else float(longest)
        open_jobs = [max(0.0, usual - job.position) for job in self.jobs.values() if not job.state.ended]
        units = sum(open_jobs) + max(0, wanted - len(self.jobs)) * usual
        return units * elapsed / done

    @property
    def _ends_early(self) -> bool:
        """Whether jobs may end, or wait for good, before they are trained to the end."""
        if self.experiment is None:
            return False
        policy = self.experiment.spec.get("policy") or {}
        name = (policy.get("command") or policy.get("name")) if isinstance(policy, Mapping) else policy
        return name not in (None, "default") or self.experiment.metric.target is not None

    def slots_in_use(self) -> tuple[int, int]:
        """How many slots train, and how many the experiment holds."""
        busy = sum(len(job.slots) for job in self.jobs.values() if job.state.live)
        held = self.experiment.slots if self.experiment else 0
        return busy, max(busy, held)

    def best(self) -> Job | None:
        """The job with the best value so far."""
        return self.jobs.get(self.experiment.best_job) if self.experiment and self.experiment.best_job else None

    def without_best(self) -> str:
        """Why there is no best value: nothing was reported yet, or not the experiment's metric."""
        if self.experiment is not None and self.experiment.spec.get("data") and not self.evaluated:
            return "no evaluation yet" if self.metrics else "no report yet"
        trouble = metric_trouble(self.experiment.metric.name, self.metrics) if self.experiment else ""
        return trouble or "no report yet"

    def waits(self) -> list[tuple[JobState, int, str]]:
        """Why jobs wait: a state, how many of its jobs, and their reason; the most first, what begins just now left out."""
        counted: Counter[tuple[JobState, str]] = Counter()
        for job in self.jobs.values():
            if job.state in _WAITING and job.reason:
                counted[job.state, first_line(job.reason)] += 1
        return [(state, amount, reason) for (state, reason), amount in counted.most_common()]

    def counts(self) -> dict[JobState, int]:
        """Jobs by state, in the order of the states; without the empty ones."""
        counted = dict.fromkeys(JobState, 0)
        for job in self.jobs.values():
            counted[job.state] += 1
        return {state: amount for state, amount in counted.items() if amount}

    def merit(self, job: Job) -> float:
        """A key that sorts better jobs first; a job without a finite value comes last."""
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
        # A run that went back to a snapshot reports its positions again; the first report is the one that counts.
        if curve and position <= curve[-1][0]:
            return
        curve.append((position, value))
        if len(curve) > _CURVE_LIMIT:
            # Counted from the end, so that the newest point stays.
            self._curves[job] = curve[::-2][::-1]
