"""POP: promising jobs have machines of their own, opportunistic ones take turns on the others, poor ones end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hopyard.policy import Cluster, JobState, JobView
from hopyard.predictor import Prediction
from hopyard_policies.base.parameters import need_part, need_whole
from hopyard_policies.pop.boundary_policy import FRACTION, LookingPolicy, left, longest, never_above, trained
from hopyard_policies.pop.expected_remaining_time import Outlook, outlook_of
from hopyard_policies.pop.slots import divide


class PopPolicy(LookingPolicy):
    """Gives promising jobs machines of their own, lets the others take turns on the rest, and ends poor ones.

    It is POP as HyperDrive describes it (sections 3 and 5.3).

    At each multiple of `evaluation_boundary` a job that has never been better than the experiment's `kill_threshold` ends, and the
    predictor is asked about any other while it trains on. From the chances at its future epochs follow a confidence p and an
    expected remaining time ERT (`pop.outlook`), from the confidences of all jobs the slots for promising ones and the threshold
    (`pop.slots`). Then, at its next report,

    * a job with p below `least_confidence` ends;
    * a promising job that has a slot trains on. Slots go by p, then shorter ERT;
    * any other one is suspended, if somebody waits for its machine: a promising job with a slot, a configuration that has not
      begun, a suspended job. Promising jobs without a slot wait first among those, the others take turns.

    Promising jobs are labelled with p. No machine idles while a job could train on it. A job whose prediction fails, or has yet to
    come, keeps its last outlook; without one it is opportunistic.

    The target is the experiment's. Without one (the dual problem: the best within `stop.max_time`) it is dynamic (section 9): `step`
    better than the best report so far. p is the chance that a single report is as good, also where the mean of several must be
    (`metric.target_over`): then it is rather too high.

    A subclass may have another `aim`, end jobs for other reasons (`is_poor`), or think otherwise of their `outlook`.

    Args:
        evaluation_boundary: Distance of the boundaries, at least 1, in the experiment's unit; None: a fifteenth of the longest
            job (the paper recommends 5 to 10 %).
        least_confidence: A job with less ends; exactly as much does not. In [0, 1].
        slots_per_job: k, the slots that one promising job counts for, at least 1.
        step: How much better than the best the dynamic target is, at least 0, in the metric's unit.
        ahead: Jobs created beyond those that have a machine, in 1..10000.
        elastic: How jobs train on several machines each, and on how many (`hopyard_policies.elastic`); None: each on one. Free
            machines go to the jobs with the largest p first. What a promising job counts for is `slots_per_job` all the same.

    Raises:
        ValueError: An argument is out of range.
    """

    def __init__(
        self,
        evaluation_boundary: int | None = None,
        least_confidence: float = 0.05,
        slots_per_job: int = 1,
        step: float = 0.0,
        ahead: int = 2,
        elastic: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(step, ahead, elastic)
        need_whole("evaluation_boundary", evaluation_boundary if evaluation_boundary is not None else 1)
        need_whole("slots_per_job", slots_per_job)
        need_part("least_confidence", least_confidence)
        self._every = evaluation_boundary
        self._least = least_confidence
        self._per_job = slots_per_job
        self._outlooks: dict[str, Outlook] = {}
        self._promising: dict[str, None] = {}  # jobs with slots, best first
        self._labels: dict[str, float] = {}  # of promising jobs, those without a slot included

    # ---------------------------------------------------------------------------------------------------------- up-calls

    def allocate_jobs(self, cluster: Cluster) -> None:
        """Idle machines go to promising jobs with slots, then to new jobs, then to suspended ones in turn."""
        self._divide(cluster)
        super().allocate_jobs(cluster)

    def confidences(self, cluster: Cluster) -> dict[str, float]:
        """p of each open job whose outlook is known."""
        return {job.id: self._outlooks[job.id].confidence for job in cluster.open_jobs() if job.id in self._outlooks}

    # ------------------------------------------------------------------------------------------------ what may be overridden

    def is_poor(self, cluster: Cluster, job: JobView) -> bool:
        """Whether a job that has come to a boundary ends there: it has never been better than the kill threshold."""
        return never_above(cluster, job.id)

    def outlook(self, cluster: Cluster, job: JobView, reaches: Sequence[float]) -> Outlook:
        """Confidence and expected remaining time of a job whose prediction has come.

        Args:
            cluster: The moment of `on_prediction`.
            job: Whose; it has not ended.
            reaches: The chance that a report is as good as `aim` was, at each position after the last one that was predicted from.
        """
        _, epoch = trained(cluster, job.id)
        return outlook_of(reaches, left(cluster, job), epoch)

    # ------------------------------------------------------------------------------------------------------------- looks

    def _boundary(self, cluster: Cluster, passed: int) -> int:
        every = self._every or max(longest(cluster) // FRACTION, 1)
        return (passed // every + 1) * every

    def _books(self) -> tuple[dict[str, Any], ...]:
        return *super()._books(), self._outlooks

    def _learn(self, cluster: Cluster, job: JobView, prediction: Prediction) -> None:
        """A job's outlook follows from its prediction; without a chance it ends."""
        outlook = self._outlooks[job.id] = self.outlook(cluster, job, prediction.reaches)
        if outlook.confidence < self._least:
            cluster.terminate_job(job.id)
        self._divide(cluster)

    def _stays(self, cluster: Cluster, job: JobView) -> bool:
        self._divide(cluster)
        return job.id in self._promising or not self._somebody_waits(cluster)

    def _urgency(self, job: JobView) -> float:
        return max(self._outlooks[job.id].confidence, self._least) if job.id in self._outlooks else self._least

    # -------------------------------------------------------------------------------------------------------------- slots

    def _divide(self, cluster: Cluster) -> None:
        """Who is promising and has a slot follows from all outlooks."""
        jobs = {job.id: job for job in cluster.open_jobs() if job.state is not JobState.HELD}
        known = {name: self._outlooks[name] for name in jobs if name in self._outlooks}
        division = divide((outlook.confidence for outlook in known.values()), cluster.share, self._per_job)
        ranked = sorted(known, key=lambda name: (-known[name].confidence, known[name].remaining, jobs[name].ordinal))
        threshold = division.threshold
        above = [name for name in ranked if threshold is not None and known[name].confidence >= threshold]
        self._promising = dict.fromkeys(above[: division.promising // self._per_job])
        self._labels = {name: known[name].confidence for name in above}
        for name, job in jobs.items():
            label = self._labels.get(name, 0.0)
            if (job.priority or 0.0) != label:
                cluster.label_job(name, label)

    def _waiting(self, cluster: Cluster) -> list[JobView]:
        """Jobs that wait for a machine, in the order in which they get one."""
        idle = [job for job in cluster.idle_jobs() if job.position < job.max_position]
        ranks = {name: rank for rank, name in enumerate(self._promising)}
        return sorted(
            idle, key=lambda job: (job.id not in ranks, ranks.get(job.id, 0), job.attempt > 0, *self._turn(job))
        )

    def _turn(self, job: JobView) -> tuple[float, float]:
        """Among suspended jobs: promising ones without a slot first (p, then ERT), the others in turn."""
        return (
            (-self._outlooks[job.id].confidence, self._outlooks[job.id].remaining)
            if job.id in self._labels
            else (0.0, 0.0)
        )

    def _somebody_waits(self, cluster: Cluster) -> bool:
        return bool(self._waiting(cluster)) or cluster.count(JobState.CREATING) > 0 or cluster.experiment.jobs_left > 0
