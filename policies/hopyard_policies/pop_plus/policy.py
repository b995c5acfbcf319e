"""pop_plus: machines go where a second of them promises most."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from hopyard.policy import Cluster, Decision, IterationFinish, JobState, JobView, RunEnd
from hopyard.policy.vocabulary import DecisionKind, RunEndReason
from hopyard.predictor import Prediction
from hopyard_policies.base.parameters import need_whole
from hopyard_policies.pop.boundary_policy import LookingPolicy, left, longest, never_above, trained
from hopyard_policies.pop_plus.calibration import PRIOR, Experience
from hopyard_policies.pop_plus.expected_gain import prospect_of

_FIRST: Final = 30
"""The first look is at this part of the longest job."""
_OFTEN: Final = 8
"""Looks are no further apart than this part of it."""
_POOR: Final = 0.3
"""What the chances of a job count that has never been better than the kill threshold."""
_SLIM: Final = 0.01
"""The least that a job's chance counts where machines are divided."""


class PopPlusPolicy(LookingPolicy):
    """Trains the jobs with the best chance of the target for a second of machine time, those included that are still to be made.

    The predictor is asked about a job at `first_look`, then whenever it has trained as much again, or an eighth of the longest job.
    From the answer follow the chance that the job reaches the target, and the expected seconds until it has, or has trained in vain;
    the first by the second is what it is worth. The chance counts as much as such chances have come true in this experiment so far, and
    what a new configuration is worth follows from all first looks and what came of them (`pop_plus.experience`).

    At the report after an answer a job leaves its machine if one that waits is worth more: a suspended one, which pays for what
    suspending and resuming have cost so far, or a new one. Nothing is ended: who is suspended may come back. The chances of a job
    that has never been better than the experiment's `kill_threshold` count a third. No machine idles while a job could train on it.
    A job that was never answered about counts as new.

    The target is the experiment's. Without one (the best within `stop.max_time`) it is dynamic: `step` better than the best report
    so far.

    Args:
        first_look: Position of the first look, at least 1, in the experiment's unit; None: a thirtieth of the longest job.
        step: How much better than the best the dynamic target is, at least 0, in the metric's unit.
        ahead: Jobs created beyond those that have a machine, in 1..10000.
        elastic: How jobs train on several machines each, and on how many (`hopyard_policies.elastic`); None: each on one. Free machines
            go to the jobs with the best chances first. What a job is worth is counted by its own seconds, on however many machines.

    Raises:
        ValueError: An argument is out of range.
    """

    def __init__(
        self,
        first_look: int | None = None,
        step: float = 0.0,
        ahead: int = 2,
        elastic: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(step, ahead, elastic)
        need_whole("first_look", first_look if first_look is not None else 1)
        self._first = first_look
        self._experience = Experience()
        self._began: dict[
            str, tuple[float, int]
        ] = {}  # when and from which position a run was started that has not been heard of
        self._left: dict[str, float] = {}  # when a job was told to leave
        self._starting = Mean()
        self._leaving = Mean()

    # ---------------------------------------------------------------------------------------------------------- up-calls

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        """Looks at a job at its boundaries, and lets it train on or leave once the answer is known."""
        began = self._began.pop(event.job, None)
        if began is not None:
            trained_since = (point.seconds for point in cluster.curve(event.job) if point.position > began[1])
            self._starting.add(max(cluster.now - began[0] - math.fsum(trained_since), 0.0))
        decision = super().on_iteration_finish(cluster, event)
        if decision.kind is DecisionKind.SUSPEND:
            self._left[event.job] = cluster.now
        return decision

    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        """Measures what it costs to leave."""
        super().on_run_end(cluster, run)
        self._began.pop(run.job, None)
        left_at = self._left.pop(run.job, None)
        if left_at is not None and run.reason is RunEndReason.SUSPENDED:
            self._leaving.add(cluster.now - left_at)

    # ------------------------------------------------------------------------------------------------------------- looks

    def _boundary(self, cluster: Cluster, passed: int) -> int:
        most = longest(cluster)
        first = self._first or max(most // _FIRST, 1)
        return passed + min(passed, max(most // _OFTEN, 1)) if passed >= first else first

    def _books(self) -> tuple[dict[str, Any], ...]:
        return *super()._books(), self._began, self._left

    def _learn(self, cluster: Cluster, job: JobView, prediction: Prediction) -> None:
        """A job's prospect follows from its prediction."""
        seconds, epoch = trained(cluster, job.id)
        credit = _POOR if never_above(cluster, job.id) else 1.0
        prospect = prospect_of([credit * chance for chance in prediction.reaches], left(cluster, job), epoch)
        self._experience.look(job.id, prospect, seconds, seconds + epoch * len(prediction.reaches))
        cluster.label_job(job.id, prospect.chance)

    def _start(self, cluster: Cluster, job: JobView, machines: tuple[str, ...]) -> None:
        self._began[job.id] = cluster.now, job.position
        super()._start(cluster, job, machines)

    def _forget(self, cluster: Cluster) -> None:
        super()._forget(cluster)
        for name, track in list(self._experience.tracks.items()):
            if not track.ended and cluster.jobs[name].state.ended:
                self._experience.end(name)

    # ------------------------------------------------------------------------------------------------------------ machines

    def _waiting(self, cluster: Cluster) -> list[JobView]:
        """Who is worth most comes first; of equals who has not begun, then who was created first."""
        idle = [job for job in cluster.idle_jobs() if job.position < job.max_position]
        return sorted(idle, key=lambda job: (-self._worth(job), job.attempt > 0, job.ordinal))

    def _stays(self, cluster: Cluster, job: JobView) -> bool:
        waiting = [self._worth(other) for other in self._waiting(cluster)]
        to_come = cluster.count(JobState.CREATING) + cluster.experiment.jobs_left
        waiting = sorted([*waiting, *[self._experience.fresh()] * min(to_come, len(cluster.machines))], reverse=True)
        # Machines that are free, or soon will be, are for the first of them.
        free = cluster.count(JobState.SUSPENDING) + len(cluster.idle_machines())
        return len(waiting) <= free or waiting[free] <= self._worth(job, stays=True)

    def _urgency(self, job: JobView) -> float:
        """Elastic jobs: the chance that a second saved brings the target a second nearer."""
        track = self._experience.tracks.get(job.id)
        return max(track.prospect.chance, _SLIM) if track is not None else PRIOR

    def _worth(self, job: JobView, stays: bool = False) -> float:
        """What a second of a job is worth, on the machine that it has or after a switch."""
        if not self._experience.known(job.id):
            return self._experience.fresh()
        return self._experience.worth(job.id, 0.0 if stays else self._starting.value + self._leaving.value)


class Mean:
    """The mean of what was added so far; 0 before."""

    def __init__(self) -> None:
        self.value = 0.0
        self._count = 0

    def add(self, value: float) -> None:
        """Takes in one more."""
        self._count += 1
        self.value += (value - self.value) / self._count
