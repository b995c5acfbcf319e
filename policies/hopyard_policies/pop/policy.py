"""The policy `pop`: each promising job has a slot, opportunistic jobs share the remaining slots, poor jobs are terminated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from hopyard.policy import Cluster, JobState, JobView
from hopyard.predictor import Prediction
from hopyard_policies.base.parameters import need_part, need_whole
from hopyard_policies.pop.boundary_policy import FRACTION, BoundaryPolicy, left, longest, trained
from hopyard_policies.pop.expected_remaining_time import Outlook, outlook_of
from hopyard_policies.pop.kill_threshold import CRASH_BOUNDARIES, not_learning
from hopyard_policies.pop.slots import divide

_DIGITS: Final = 6
"""Decimal digits of seconds that are compared: the precision of times in seconds since the Unix epoch."""


class _Estimate(NamedTuple):
    """The outlook of a job by its latest prediction.

    Attributes:
        outlook: The confidence, and the expected remaining time from `position` on.
        position: The last position that the predictor knew.
        pace: Mean seconds of the training from one position to the next.
    """

    outlook: Outlook
    position: int
    pace: float

    def at(self, position: int) -> Outlook:
        """Return the outlook of the job at a later or, after a loss of training, an earlier position.

        All future epochs are then nearer or farther by the same number, which changes the sum of equation 2 by p times this number.
        """
        since = (position - self.position) * self.pace
        return self.outlook._replace(remaining=max(self.outlook.remaining - self.outlook.confidence * since, 0.0))


class PopPolicy(BoundaryPolicy):
    """Dedicates slots to promising jobs, lets other jobs share the rest, and terminates poor jobs.

    This is POP as HyperDrive describes it (sections 3 and 5.3).

    At each multiple of `evaluation_boundary` a job is terminated if it does not learn: it has never been better than the
    experiment's `kill_threshold`, or its learning has crashed, because its values have stayed at the threshold or below it for
    `crash_after` units (`pop.kill_threshold`). For any other job the policy requests a prediction while the job trains. The
    probabilities at future epochs give a confidence p and an expected remaining time ERT (`pop.expected_remaining_time`). Later
    training reduces the ERT. Jobs whose ERT is at most the time left now *satisfy*; their confidences give the number of slots for
    promising jobs and the threshold (`pop.slots`). These slots go to the satisfying jobs with p at the threshold or above, first to
    those with the highest p, then the shortest ERT. Jobs that get one are promising, even while they wait. All others are
    opportunistic. At the next report after the prediction:

    * a job with p below `least_confidence` is terminated;
    * a promising job continues;
    * an opportunistic job is suspended if another one waits for its slot: a promising job, a new configuration, or a suspended job.
      Among suspended jobs, satisfying ones with p at the threshold or above come first; the others take turns.

    Promising jobs are labelled with p, opportunistic ones with 0 from their first prediction on. If the slots for promising jobs
    are fewer than `slots_per_job`, no job is promising. No slot is idle while a job could train on it. A job whose prediction
    failed or is pending has its latest confidence and ERT; without any it is opportunistic.

    The target is the experiment's. Without one (the dual problem: the best result within `stop.max_time`) it is dynamic
    (section 9): the best value so far, improved by `step`. p is the probability that a single report reaches the
    target. With `metric.target_over`, where the mean of several reports must reach it, p is an overestimate.

    Subclasses may override `aim` (returns the target), `is_poor` (returns whether a job at a boundary is terminated) and `outlook`
    (returns p and ERT of a job, given its prediction).

    Args:
        evaluation_boundary: Distance between boundaries in the experiment's unit, at least 1; None: a fifteenth of the
            longest job (the paper recommends 5 to 10 %).
        least_confidence: Jobs with a smaller confidence are terminated; in [0, 1].
        crash_after: Distance in the experiment's unit, at least 1: a job that has been better than `kill_threshold` is
            terminated at a boundary if its latest low values are at least so far apart; None: two boundaries.
        slots_per_job: k, the number of slots reserved for each promising job when slots are divided, at least 1.
        step: Distance of the dynamic target from the best value, in the metric's unit, at least 0.
        ahead: Number of jobs created in advance of free slots, in 1..10000.
        elastic: How jobs use several slots each (`hopyard_policies.elastic`); None: one slot for each job. Free
            slots go to the jobs with the largest p first. `slots_per_job` applies to elastic jobs, too.

    Raises:
        ValueError: An argument is out of range.
    """

    version = "2"

    def __init__(
        self,
        evaluation_boundary: int | None = None,
        least_confidence: float = 0.05,
        crash_after: int | None = None,
        slots_per_job: int = 1,
        step: float = 0.0,
        ahead: int = 2,
        elastic: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(step, ahead, elastic)
        need_whole("evaluation_boundary", evaluation_boundary if evaluation_boundary is not None else 1)
        need_whole("slots_per_job", slots_per_job)
        need_whole("crash_after", crash_after if crash_after is not None else 1)
        need_part("least_confidence", least_confidence)
        self._every = evaluation_boundary
        self._least = least_confidence
        self._per_job = slots_per_job
        self._crash_after = crash_after
        self._estimates: dict[str, _Estimate] = {}
        self._promising: dict[str, None] = {}  # best first
        self._next: dict[
            str, int
        ] = {}  # place of the jobs that would be promising if there were more slots, best first

    # ---------------------------------------------------------------------------------------------------------- up-calls

    def allocate_jobs(self, cluster: Cluster) -> None:
        """Start promising jobs first, then new jobs, then suspended ones in turn; create jobs in advance."""
        self._divide(cluster)
        super().allocate_jobs(cluster)

    def confidences(self, cluster: Cluster) -> dict[str, float]:
        """Return by job id the confidences p by which slots are divided: those of the jobs whose ERT is at most the time left now."""
        return {name: outlook.confidence for name, outlook in self._satisfying(cluster).items()}

    # ------------------------------------------------------------------------------------------------ what may be overridden

    def is_poor(self, cluster: Cluster, job: JobView) -> bool:
        """Return whether a job at a boundary is terminated: by the kill threshold it never learned, or its learning crashed."""
        return not_learning(cluster, job.id, self._crash_after or CRASH_BOUNDARIES * self._interval(cluster))

    def outlook(self, cluster: Cluster, job: JobView, reaches: Sequence[float]) -> Outlook:
        """Return confidence and expected remaining time of a job, given its prediction.

        Args:
            cluster: The view of the up-call `on_prediction`.
            job: The job; it has not ended.
            reaches: The probability that a report reaches `aim`, for each position after the last one known to the
                predictor.
        """
        _, epoch = trained(cluster, job.id)
        return outlook_of(reaches, left(cluster, job), epoch)

    # ------------------------------------------------------------------------------------------------------- predictions

    def _boundary(self, cluster: Cluster, passed: int) -> int:
        every = self._interval(cluster)
        return (passed // every + 1) * every

    def _interval(self, cluster: Cluster) -> int:
        return self._every or max(longest(cluster) // FRACTION, 1)

    def _books(self) -> tuple[dict[str, Any], ...]:
        return *super()._books(), self._estimates

    def _learn(self, cluster: Cluster, job: JobView, prediction: Prediction) -> None:
        """Update a job's confidence and expected remaining time; terminate the job if its confidence is below `least_confidence`."""
        outlook = self.outlook(cluster, job, prediction.reaches)
        if outlook.confidence < self._least:
            self._estimates.pop(job.id, None)
            self._divide(cluster)
            cluster.terminate_job(job.id)
            return
        seconds, _ = trained(cluster, job.id)
        reported = [point.position for point in cluster.curve(job.id)]
        known = [position for position in reported if position < min(prediction.positions, default=math.inf)]
        pace = seconds / reported[-1] if reported else 0.0
        self._estimates[job.id] = _Estimate(outlook, max(known, default=0), pace)
        self._divide(cluster)

    def _stays(self, cluster: Cluster, job: JobView) -> bool:
        self._divide(cluster)
        return job.id in self._promising or not self._somebody_waits(cluster)

    def _urgency(self, job: JobView) -> float:
        return (
            max(self._estimates[job.id].outlook.confidence, self._least) if job.id in self._estimates else self._least
        )

    # -------------------------------------------------------------------------------------------------------------- slots

    def _satisfying(self, cluster: Cluster) -> dict[str, Outlook]:
        """Return the outlooks of the jobs that N_satisfying counts (section 3.2): their ERT is at most the time left now.

        A job that a person has paused is not among them.
        """
        found = {}
        for job in cluster.open_jobs():
            estimate = self._estimates.get(job.id)
            if estimate is None or job.state is JobState.HELD:
                continue
            outlook = estimate.at(job.position)
            if round(outlook.remaining - left(cluster, job), _DIGITS) <= 0:
                found[job.id] = outlook
        return found

    def _divide(self, cluster: Cluster) -> None:
        """Recompute which jobs are promising, and label them with their confidence p; other jobs with a prediction have the label 0."""
        jobs = {job.id: job for job in cluster.open_jobs() if job.state is not JobState.HELD}
        known = self._satisfying(cluster)
        division = divide((outlook.confidence for outlook in known.values()), cluster.share, self._per_job)
        count, threshold = division.promising // self._per_job, division.threshold
        ranked = sorted(
            known, key=lambda name: (-known[name].confidence, round(known[name].remaining, _DIGITS), jobs[name].ordinal)
        )
        above = [name for name in ranked if count and threshold is not None and known[name].confidence >= threshold]
        self._promising = dict.fromkeys(above[:count])
        self._next = {name: place for place, name in enumerate(above[count:])}
        for name, job in jobs.items():
            label = known[name].confidence if name in self._promising else 0.0
            if (job.priority or 0.0) != label or (job.priority is None and name in self._estimates):
                cluster.label_job(name, label)

    def _waiting(self, cluster: Cluster) -> list[JobView]:
        """Return the idle jobs in the order in which they get slots: promising ones, displaced ones, new ones, others.

        Of the others, those that would be promising if there were more slots come first, the best one first.
        """
        idle = [job for job in cluster.idle_jobs() if job.position < job.max_position]
        ranks = {name: rank for rank, name in enumerate(self._promising)}
        return sorted(
            idle,
            key=lambda job: (
                job.id not in ranks,
                ranks.get(job.id, 0),
                not job.displaced,
                job.attempt > 0,
                self._next.get(job.id, len(self._next)),
            ),
        )

    def _somebody_waits(self, cluster: Cluster) -> bool:
        return bool(self._waiting(cluster)) or cluster.count(JobState.CREATING) > 0 or cluster.experiment.jobs_left > 0
