"""Policies that look at jobs at boundaries, by what a predictor says of their curves."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Final

from hopyard.policy import (
    CONTINUE,
    ENDLESS,
    SUSPEND,
    TERMINATE,
    Cluster,
    Decision,
    IterationFinish,
    JobState,
    JobView,
    PredictionReady,
    Verdict,
)
from hopyard.policy.vocabulary import Predict
from hopyard.predictor import Prediction
from hopyard_policies.base.job_creation import need_at_most, room
from hopyard_policies.base.parameters import need_whole
from hopyard_policies.elastic import Elastic, ElasticPolicy

FRACTION: Final = 15
"""How many boundaries a job has at most by default: one every 5 to 10 % of the longest job (HyperDrive, section 9)."""

_BOUNDARY: Final = 10


class LookingPolicy(ElasticPolicy):
    """At boundaries the predictor is asked about a job, which trains on meanwhile; at the report after the answer it stays or leaves.

    Subclasses say where the boundaries are, what becomes of an answer, who stays and in which order jobs wait. What is known by job is
    in dicts that `_books` lists, and forgotten when the job has ended.
    """

    # Runs wait at boundaries and while an answer is awaited, and all that such a policy has to say it says there.
    every_iteration = False
    ends_jobs = False

    def __init__(self, step: float, ahead: int, elastic: Mapping[str, Any] | None = None) -> None:
        super().__init__(elastic)
        need_whole("ahead", ahead)
        need_at_most("ahead", ahead)
        if not isinstance(step, int | float) or isinstance(step, bool) or not 0 <= step < math.inf:
            raise ValueError(f"step is {step!r}; it must be a finite number of at least 0")
        self._step = step
        self._ahead = ahead
        self._passed: dict[str, int] = {}  # the boundary up to which a job was looked at
        self._asked: dict[str, str] = {}  # the ticket that a job's answer is awaited with
        self._undecided: dict[str, None] = {}  # jobs that trained on past a boundary, for want of their answer

    # ------------------------------------------------------------------------------------------------------ for subclasses

    @abstractmethod
    def _boundary(self, cluster: Cluster, passed: int) -> int:
        """The first boundary beyond one that was passed, or beyond 0."""

    @abstractmethod
    def _learn(self, cluster: Cluster, job: JobView, prediction: Prediction) -> None:
        """What was asked about a job that has not ended is answered."""

    @abstractmethod
    def _stays(self, cluster: Cluster, job: JobView) -> bool:
        """Whether a job that was looked at keeps its machine."""

    @abstractmethod
    def _waiting(self, cluster: Cluster) -> list[JobView]:
        """Jobs that wait for a machine, in the order in which they get one."""

    def _urgency(self, job: JobView) -> float:
        """What a second that a job is done sooner is worth, > 0, beside the others': of elastic ones."""
        return 1.0

    def _books(self) -> tuple[dict[str, Any], ...]:
        """What is known by job."""
        return self._passed, self._asked, self._undecided

    # ---------------------------------------------------------------------------------------------------------- up-calls

    def allocate_jobs(self, cluster: Cluster) -> None:
        """Idle machines go to waiting jobs, and some jobs are created ahead."""
        self._forget(cluster)
        waiting = self._waiting(cluster)
        if self._elastic is not None:
            self._start_elastically(cluster, self._elastic, waiting)
            self._create(cluster)
            return
        for machine in cluster.idle_machines():
            if not waiting:
                break
            self._start(cluster, waiting.pop(0), (machine.id,))
        self._create(cluster)

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        """Looks at a job at its boundaries, and lets it train on or leave once the answer is known."""
        job = cluster.jobs[event.job]
        if event.at_until or event.report.finished or job.state is JobState.SUSPENDING:
            return CONTINUE
        if job.id in self._undecided and job.id not in self._asked:
            del self._undecided[job.id]
            if not self._stays(cluster, job):
                return SUSPEND
        if event.position >= self._boundary(cluster, self._passed.get(job.id, 0)):
            self._passed[job.id] = event.position
            if self.is_poor(cluster, job):
                return TERMINATE
            self._undecided[job.id] = None
            aim = self.aim(cluster)
            if job.id not in self._asked and aim is not None:
                self._asked[job.id] = cluster.predict(job.id, target=aim)
        # While an answer is awaited there is nothing to wait for at a report: the next one will do.
        return Decision.proceed(event.position + 1 if job.id in self._undecided else self._allowed(cluster, job))

    def on_prediction(self, cluster: Cluster, prediction: PredictionReady) -> None:
        """Takes the answer to what was asked last about a job."""
        if self._asked.get(prediction.job) != prediction.ticket:
            return
        del self._asked[prediction.job]
        job = cluster.jobs.get(prediction.job)
        if not prediction.error and job is not None and not job.state.ended:
            self._learn(cluster, job, prediction.result)

    def on_refused(self, cluster: Cluster, verdict: Verdict) -> None:
        """What was not asked is not waited for."""
        if isinstance(verdict.command, Predict) and self._asked.get(verdict.command.job) == verdict.command.ticket:
            del self._asked[verdict.command.job]

    def demand(self, cluster: Cluster) -> int:
        """Machines that runs hold, that waiting jobs need, and that jobs still to be created will need."""
        return self._useful(cluster, cluster.queued() + cluster.count(JobState.CREATING) + cluster.experiment.jobs_left)

    # ------------------------------------------------------------------------------------------------ what may be overridden

    def aim(self, cluster: Cluster) -> float | None:
        """The value of the metric that predictions are about; None: nothing is predicted yet.

        The experiment's target; without one the dynamic target of HyperDrive's section 9, `step` better than the best so far.
        """
        experiment, incumbent = cluster.experiment, cluster.incumbent
        if experiment.target is not None:
            return experiment.target
        if incumbent is None:
            return None
        return incumbent.value + (self._step if experiment.mode == "max" else -self._step)

    def is_poor(self, cluster: Cluster, job: JobView) -> bool:
        """Whether a job that has come to a boundary ends there, whatever a predictor would say: never.

        Policies that know a kill threshold say more (`never_above`).
        """
        return False

    # ----------------------------------------------------------------------------------------------------------- helpers

    def _allowed(self, cluster: Cluster, job: JobView) -> int:
        """How far a run of the job trains without a decision."""
        if job.id in self._asked or job.id in self._undecided:
            return min(job.position + 1, job.max_position)
        return min(self._boundary(cluster, self._passed.get(job.id, 0)), job.max_position)

    def _start(self, cluster: Cluster, job: JobView, machines: tuple[str, ...]) -> None:
        cluster.start_job(job.id, machines, until=job.max_position, allowed=self._allowed(cluster, job))

    def _start_elastically(self, cluster: Cluster, elastic: Elastic, waiting: list[JobView]) -> None:
        """Starts as many jobs as there are machines for, on gangs; what nobody waits for goes to those that train."""
        unmade = cluster.count(JobState.CREATING) + cluster.experiment.jobs_left
        able = elastic.first(waiting)
        now = able[: len(elastic.slots(cluster))]
        coming = len(able) - len(now) + unmade
        refused = elastic.start(
            cluster, now, coming, self._way, lambda job, gang: self._start(cluster, job, gang), self._urgency
        )
        elastic.widen(cluster, len(refused) + coming, self._way, self._urgency)

    def _create(self, cluster: Cluster) -> None:
        new = sum(job.attempt == 0 for job in cluster.idle_jobs()) + cluster.count(JobState.CREATING)
        wanted = self._ahead + len(cluster.idle_machines()) - new
        for _ in range(room(cluster, min(cluster.experiment.jobs_left, wanted))):
            cluster.create_job()

    def _forget(self, cluster: Cluster) -> None:
        for book in self._books():
            for name in [name for name in book if cluster.jobs[name].state.ended]:
                del book[name]


def left(cluster: Cluster, job: JobView) -> float:
    """Seconds until the job's experiment is over; infinite where it has no end."""
    end = cluster.experiments[job.experiment].end_at if job.experiment else cluster.experiment.end_at
    return end - cluster.now if end is not None else math.inf


def trained(cluster: Cluster, job: str) -> tuple[float, float]:
    """Seconds that a job has trained, and the mean of its epochs; 0 before its first report."""
    seconds = [point.seconds for point in cluster.curve(job)]
    total = math.fsum(seconds)
    return total, total / len(seconds) if seconds else 0.0


def never_above(cluster: Cluster, job: str) -> bool:
    """Whether a job has never been better than the kill threshold, if there is one."""
    experiment = cluster.experiment
    threshold = experiment.kill_threshold
    if threshold is None:
        return False
    values = (point.metrics.get(experiment.metric, math.nan) for point in cluster.curve(job))
    return not any(math.isfinite(value) and experiment.better(value, threshold) for value in values)


def longest(cluster: Cluster) -> int:
    """How far the longest job trains; of jobs without an end, 15 times the paper's boundary for supervised learning."""
    most = cluster.experiment.max_position
    return most if most < ENDLESS else FRACTION * _BOUNDARY
