"""The policy `pop_plus`: slots train the jobs with the highest expected gain per second."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from hopyard.policy import Cluster, Decision, IterationFinish, JobState, JobView, RunEnd
from hopyard.policy.vocabulary import DecisionKind, RunEndReason
from hopyard.predictor import Prediction
from hopyard_policies.base.parameters import need_whole
from hopyard_policies.pop.boundary_policy import FRACTION, BoundaryPolicy, left, longest, trained
from hopyard_policies.pop.kill_threshold import CRASH_BOUNDARIES, not_learning
from hopyard_policies.pop_plus.calibration import PRIOR, PredictionHistory
from hopyard_policies.pop_plus.expected_gain import prospect_of

_FIRST: Final = 30
"""The first boundary is at this fraction (1/30) of the longest job."""
_OFTEN: Final = 8
"""Boundaries are at most this fraction (1/8) of the longest job apart."""
_POOR: Final = 0.3
"""Factor for the probabilities of a job that does not learn, by the kill threshold."""
_SLIM: Final = 0.01
"""Least probability of a job when slots are divided."""


class PopPlusPolicy(BoundaryPolicy):
    """Trains the jobs, existing or new, with the highest probability of reaching the target per second of slot time.

    The policy requests a prediction for a job at `first_look`. The next request follows when the job has trained as
    long again, or an eighth of the longest job, whichever is less. The prediction gives the probability that the job
    reaches the target, and the expected training time until it reaches the target or ends. Their ratio is the worth of a
    second of the job. Probabilities are scaled by how often earlier predictions of this experiment came true. The worth of a
    new configuration follows from all first predictions and their outcomes (`pop_plus.calibration`).

    At the report after a prediction, a job is suspended if a waiting job is worth more: a suspended job, reduced by the
    measured cost of suspending and resuming, or a new one. No job is terminated, so a suspended job may continue later.
    The probabilities of a job that does not learn are multiplied by 0.3: it was never better than the experiment's
    `kill_threshold`, or its learning has crashed, because its values have stayed at the threshold or below it for `crash_after`
    units (`pop.kill_threshold`). No slot is idle while a job could train on it. A job without a successful prediction has the
    worth of a new one.

    The target is the experiment's. Without one (the best result within `stop.max_time`) it is dynamic: the best value
    so far, improved by `step`.

    Args:
        first_look: Position of the first boundary in the experiment's unit, at least 1; None: a thirtieth of the
            longest job.
        crash_after: Distance in the experiment's unit, at least 1: the learning of a job that has been better than
            `kill_threshold` has crashed if its latest low values are at least so far apart; None: two fifteenths of the
            longest job, as for `pop`.
        step: Distance of the dynamic target from the best value, in the metric's unit, at least 0.
        ahead: Number of jobs created in advance of free slots, in 1..10000.
        elastic: How jobs use several slots each (`hopyard_policies.elastic`); None: one slot for each job. Free
            slots go to the jobs with the highest probabilities first. The worth of a job is computed from its own seconds,
            whatever its number of slots.

    Raises:
        ValueError: An argument is out of range.
    """

    version = "2"

    def __init__(
        self,
        first_look: int | None = None,
        crash_after: int | None = None,
        step: float = 0.0,
        ahead: int = 2,
        elastic: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(step, ahead, elastic)
        need_whole("first_look", first_look if first_look is not None else 1)
        need_whole("crash_after", crash_after if crash_after is not None else 1)
        self._first = first_look
        self._crash_after = crash_after
        self._experience = PredictionHistory()
        # By job: the time and position of the start of a run that has not reported yet.
        self._began: dict[str, tuple[float, int]] = {}
        self._left: dict[str, float] = {}  # Time of the last suspend command of a job.
        self._starting = Mean()
        self._leaving = Mean()

    # ---------------------------------------------------------------------------------------------------------- up-calls

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        """Request a prediction at a boundary; at the first report after the answer, return whether the job continues or is suspended.

        This is as in `BoundaryPolicy`. In addition, the first report of a run serves to measure the seconds of its start: from the
        command to this report, without the training itself.
        """
        began = self._began.pop(event.job, None)
        if began is not None:
            trained_since = (point.seconds for point in cluster.curve(event.job) if point.position > began[1])
            self._starting.add(max(cluster.now - began[0] - math.fsum(trained_since), 0.0))
        decision = super().on_iteration_finish(cluster, event)
        if decision.kind is DecisionKind.SUSPEND:
            self._left[event.job] = cluster.now
        return decision

    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        """Measure the seconds from the command to suspend a run to its end; runs that end otherwise are not measured."""
        super().on_run_end(cluster, run)
        self._began.pop(run.job, None)
        left_at = self._left.pop(run.job, None)
        if left_at is not None and run.reason is RunEndReason.SUSPENDED:
            self._leaving.add(cluster.now - left_at)

    # ------------------------------------------------------------------------------------------------------- predictions

    def _boundary(self, cluster: Cluster, passed: int) -> int:
        most = longest(cluster)
        first = self._first or max(most // _FIRST, 1)
        return passed + min(passed, max(most // _OFTEN, 1)) if passed >= first else first

    def _books(self) -> tuple[dict[str, Any], ...]:
        return *super()._books(), self._began, self._left

    def _learn(self, cluster: Cluster, job: JobView, prediction: Prediction) -> None:
        """Update the prospect of a job from its prediction, and label the job with its probability of reaching the target."""
        seconds, epoch = trained(cluster, job.id)
        crash_after = self._crash_after or CRASH_BOUNDARIES * max(longest(cluster) // FRACTION, 1)
        credit = _POOR if not_learning(cluster, job.id, crash_after) else 1.0
        prospect = prospect_of([credit * chance for chance in prediction.reaches], left(cluster, job), epoch)
        self._experience.look(job.id, prospect, seconds, seconds + epoch * len(prediction.reaches))
        cluster.label_job(job.id, prospect.chance)

    def _start(self, cluster: Cluster, job: JobView, slots: tuple[str, ...]) -> None:
        self._began[job.id] = cluster.now, job.position
        super()._start(cluster, job, slots)

    def _forget(self, cluster: Cluster) -> None:
        super()._forget(cluster)
        for name, track in list(self._experience.tracks.items()):
            if not track.ended and cluster.jobs[name].state.ended:
                self._experience.end(name)

    # ------------------------------------------------------------------------------------------------------------ slots

    def _waiting(self, cluster: Cluster) -> list[JobView]:
        """Return the idle jobs in the order in which they get slots: those with the highest worth first.

        The worth is the probability of reaching the target that a second of slot time gains. Of jobs with equal worth, those that
        displaced ones (`JobView.displaced`) come first, then those that never started, then the oldest.
        """
        idle = [job for job in cluster.idle_jobs() if job.position < job.max_position]
        return sorted(idle, key=lambda job: (-self._worth(job), not job.displaced, job.attempt > 0, job.ordinal))

    def _stays(self, cluster: Cluster, job: JobView) -> bool:
        waiting = [self._worth(other) for other in self._waiting(cluster)]
        to_come = cluster.count(JobState.CREATING) + cluster.experiment.jobs_left
        waiting = sorted([*waiting, *[self._experience.fresh()] * min(to_come, len(cluster.slots))], reverse=True)
        # The first of them get the slots that are idle or will be idle soon.
        free = cluster.count(JobState.SUSPENDING) + len(cluster.idle_slots())
        return len(waiting) <= free or waiting[free] <= self._worth(job, stays=True)

    def _urgency(self, job: JobView) -> float:
        """Return the probability that the job reaches the target, at least 0.01; before its first prediction `PRIOR`, which is 0.1.

        This is the value of a second saved, by which elastic jobs get slots.
        """
        track = self._experience.tracks.get(job.id)
        return max(track.prospect.chance, _SLIM) if track is not None else PRIOR

    def _worth(self, job: JobView, stays: bool = False) -> float:
        """Return the worth of a second of a job: the probability of reaching the target that a second of its slot time gains.

        Args:
            job: The job.
            stays: Whether it continues on its present slot. Otherwise the measured cost of suspending and starting is included.
        """
        if not self._experience.known(job.id):
            return self._experience.fresh()
        return self._experience.worth(job.id, 0.0 if stays else self._starting.value + self._leaving.value)


class Mean:
    """A running mean of the values passed to `add`; 0 before the first value.

    Attributes:
        value: The mean.
    """

    def __init__(self) -> None:
        self.value = 0.0
        self._count = 0

    def add(self, value: float) -> None:
        """Add a value to the mean."""
        self._count += 1
        self.value += (value - self.value) / self._count
