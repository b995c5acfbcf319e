"""Base class of policies that request a prediction for a job at each boundary.

A *boundary* of these policies is a position at which a job is judged. The *aim* is the value of the metric that predictions refer to.
"""

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
    ExperimentView,
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
"""Default number of boundaries of a job: one every 5 to 10 % of the longest job (HyperDrive, section 9)."""

_BOUNDARY: Final = 10


class BoundaryPolicy(ElasticPolicy):
    """Requests a prediction for a job at each boundary; at the first report after the answer the job continues or is suspended.

    The job trains while the prediction is pending. Subclasses define the boundaries, use the predictions, decide which jobs
    continue on their slots, and order the waiting jobs. `_books` lists the dictionaries keyed by job; entries of ended jobs
    are removed.

    Args:
        step: Distance of the dynamic target from the best value (see `aim`), in the metric's unit, at least 0.
        ahead: Number of jobs created in advance of free slots, in 1..10000.
        elastic: The parameter `elastic` of `ElasticPolicy`; None: one slot for each job.

    Raises:
        ValueError: An argument is out of range.
    """

    # It decides only at boundaries and while a prediction is pending, where runs wait.
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
        self._passed: dict[str, int] = {}  # position of the last boundary at which a job was judged
        self._asked: dict[str, str] = {}  # ticket of the pending prediction of a job
        self._undecided: dict[str, None] = {}  # jobs that passed a boundary and train while their prediction is pending

    def pauses(self, terms: ExperimentView) -> None:
        """Return None: jobs are suspended where their predictions say so."""

    # ------------------------------------------------------------------------------------------------------ for subclasses

    @abstractmethod
    def _boundary(self, cluster: Cluster, passed: int) -> int:
        """Return the position of the first boundary after the position `passed`; 0 is the start of the job."""

    @abstractmethod
    def _learn(self, cluster: Cluster, job: JobView, prediction: Prediction) -> None:
        """Process the prediction for a job that has not ended."""

    @abstractmethod
    def _stays(self, cluster: Cluster, job: JobView) -> bool:
        """Return whether a job continues on its slot, now that its prediction has arrived or failed; otherwise it is suspended."""

    @abstractmethod
    def _waiting(self, cluster: Cluster) -> list[JobView]:
        """Return the idle jobs that can be trained further, in the order in which they get slots."""

    def _urgency(self, job: JobView) -> float:
        """Return the value of finishing this job a second earlier (> 0), relative to other jobs; used by elastic jobs."""
        return 1.0

    def _books(self) -> tuple[dict[str, Any], ...]:
        """Return the dictionaries that are keyed by job, so that the entries of ended jobs can be removed."""
        return self._passed, self._asked, self._undecided

    # ---------------------------------------------------------------------------------------------------------- up-calls

    def allocate_jobs(self, cluster: Cluster) -> None:
        """Start waiting jobs on idle slots and create jobs in advance."""
        self._forget(cluster)
        waiting = self._waiting(cluster)
        if self._elastic is not None:
            self._start_elastically(cluster, self._elastic, waiting)
            self._create(cluster)
            return
        for slot in cluster.idle_slots():
            if not waiting:
                break
            self._start(cluster, waiting.pop(0), (slot.id,))
        self._create(cluster)

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        """Request a prediction at a boundary; at the first report after the answer, return whether the job continues or is suspended.

        A job for which `is_poor` is true at a boundary is terminated.
        """
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
        # While a prediction is pending the run does not wait; the decision follows at a later report.
        return Decision.proceed(event.position + 1 if job.id in self._undecided else self._allowed(cluster, job))

    def on_prediction(self, cluster: Cluster, prediction: PredictionReady) -> None:
        """Process a prediction if it answers the latest request for its job; ignore other predictions and errors."""
        if self._asked.get(prediction.job) != prediction.ticket:
            return
        del self._asked[prediction.job]
        job = cluster.jobs.get(prediction.job)
        if not prediction.error and job is not None and not job.state.ended:
            self._learn(cluster, job, prediction.result)

    def on_refused(self, cluster: Cluster, verdict: Verdict) -> None:
        """If the engine refused a prediction request, delete the record of the pending request."""
        if isinstance(verdict.command, Predict) and self._asked.get(verdict.command.job) == verdict.command.ticket:
            del self._asked[verdict.command.job]

    def demand(self, cluster: Cluster) -> int:
        """Return the number of slots in use plus one for each waiting job and each job yet to be created; elastic jobs can use more."""
        return self._useful(cluster, cluster.queued() + cluster.count(JobState.CREATING) + cluster.experiment.jobs_left)

    # ------------------------------------------------------------------------------------------------ what may be overridden

    def aim(self, cluster: Cluster) -> float | None:
        """Return the metric value for which predictions are requested; None: no prediction is requested.

        This is the experiment's target. Without one it is the dynamic target of HyperDrive, section 9: the best value
        so far, improved by `step`; None before any job has a value.
        """
        experiment, incumbent = cluster.experiment, cluster.incumbent
        if experiment.target is not None:
            return experiment.target
        if incumbent is None:
            return None
        return incumbent.value + (self._step if experiment.mode == "max" else -self._step)

    def is_poor(self, cluster: Cluster, job: JobView) -> bool:
        """Return whether a job at a boundary is terminated without a prediction; False by default.

        Policies with a kill threshold override this with `not_learning` (`pop.kill_threshold`).
        """
        return False

    # ----------------------------------------------------------------------------------------------------------- helpers

    def _allowed(self, cluster: Cluster, job: JobView) -> int:
        """Return the position up to which a run of the job trains without a decision."""
        if job.id in self._asked or job.id in self._undecided:
            return min(job.position + 1, job.max_position)
        return min(self._boundary(cluster, self._passed.get(job.id, 0)), job.max_position)

    def _start(self, cluster: Cluster, job: JobView, slots: tuple[str, ...]) -> None:
        cluster.start_job(job.id, slots, until=job.max_position, allowed=self._allowed(cluster, job))

    def _start_elastically(self, cluster: Cluster, elastic: Elastic, waiting: list[JobView]) -> None:
        """Start as many waiting jobs as idle slots can form gangs; the rest wait. If no job waits, move running jobs to wider gangs.

        Args:
            cluster: The view of the up-call.
            elastic: Assigns gangs to the jobs.
            waiting: The waiting jobs, in the order in which they get slots.
        """
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
        wanted = self._ahead + len(cluster.idle_slots()) - new
        for _ in range(room(cluster, min(cluster.experiment.jobs_left, wanted))):
            cluster.create_job()

    def _forget(self, cluster: Cluster) -> None:
        for book in self._books():
            for name in [name for name in book if cluster.jobs[name].state.ended]:
                del book[name]


def left(cluster: Cluster, job: JobView) -> float:
    """Return the seconds until the job's experiment reaches its time limit, on the engine's clock; infinite without a limit."""
    end = cluster.experiments[job.experiment].end_at if job.experiment else cluster.experiment.end_at
    return end - cluster.now if end is not None else math.inf


def trained(cluster: Cluster, job: str) -> tuple[float, float]:
    """Return a job's training time in seconds, and the mean seconds between its reports; (0, 0) before its first report."""
    seconds = [point.seconds for point in cluster.curve(job)]
    total = math.fsum(seconds)
    return total, total / len(seconds) if seconds else 0.0


def longest(cluster: Cluster) -> int:
    """Return the experiment's maximum position, or 150 without one: 15 times HyperDrive's boundary for supervised learning."""
    most = cluster.experiment.max_position
    return most if most < ENDLESS else FRACTION * _BOUNDARY
