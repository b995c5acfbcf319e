"""POP: promising jobs have machines of their own, opportunistic ones take turns on the others, poor ones end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from hopyard.policy import (
    CONTINUE,
    SUSPEND,
    TERMINATE,
    Cluster,
    Decision,
    IterationFinish,
    JobState,
    JobView,
    Policy,
    PredictionReady,
    Verdict,
)
from hopyard.policy.vocabulary import Predict
from hopyard_policies.pop.outlook import Outlook, outlook_of
from hopyard_policies.pop.slots import divide

_FRACTION: Final = 15
_BOUNDARY: Final = 10
_ENDLESS: Final = 2**31 - 1
"""The max position of jobs that train until their programs end."""


class PopPolicy(Policy):
    """POP as HyperDrive describes it (sections 3 and 5.3).

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
        ahead: Jobs created beyond those that have a machine, at least 1.

    Raises:
        ValueError: An argument is out of range.
    """

    # Runs wait at boundaries and while an outlook is awaited, and all that it has to say it says there.
    every_iteration = False
    ends_jobs = False

    def __init__(
        self,
        evaluation_boundary: int | None = None,
        least_confidence: float = 0.05,
        slots_per_job: int = 1,
        step: float = 0.0,
        ahead: int = 2,
    ) -> None:
        _need_whole("evaluation_boundary", evaluation_boundary if evaluation_boundary is not None else 1)
        _need_whole("slots_per_job", slots_per_job)
        _need_whole("ahead", ahead)
        if not isinstance(least_confidence, int | float) or not 0 <= least_confidence <= 1:
            raise ValueError(f"least_confidence is {least_confidence!r}; it must be a chance in 0..1")
        if not isinstance(step, int | float) or not 0 <= step < math.inf:
            raise ValueError(f"step is {step!r}; it must be a finite number of at least 0")
        self._boundary = evaluation_boundary
        self._least = least_confidence
        self._per_job = slots_per_job
        self._step = step
        self._ahead = ahead
        self._outlooks: dict[str, Outlook] = {}
        self._passed: dict[str, int] = {}  # boundaries at which a job was looked at
        self._asked: dict[str, str] = {}  # the ticket that a job's outlook is awaited with
        self._undecided: set[str] = set()  # jobs that trained on past a boundary, for want of their outlook
        self._promising: dict[str, None] = {}  # jobs with slots, best first
        self._labels: dict[str, float] = {}  # of promising jobs, those without a slot included

    # ---------------------------------------------------------------------------------------------------------- up-calls

    def allocate_jobs(self, cluster: Cluster) -> None:
        """Idle machines go to promising jobs with slots, then to new jobs, then to suspended ones in turn."""
        self._divide(cluster)
        waiting = self._waiting(cluster)
        for machine in cluster.idle_machines():
            if not waiting:
                break
            self._start(cluster, waiting.pop(0), machine.id)
        self._create(cluster)

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        """Looks at a job at its boundaries, and lets it train on or leave once its outlook is known."""
        job = cluster.jobs[event.job]
        if event.at_until or event.report.finished or job.state is JobState.SUSPENDING:
            return CONTINUE
        if event.position // self._every(cluster) > self._passed.get(job.id, 0):
            self._passed[job.id] = event.position // self._every(cluster)
            if self.is_poor(cluster, job):
                return TERMINATE
            self._undecided.add(job.id)
            if job.id not in self._asked:
                self._ask(cluster, job.id)
        if job.id in self._asked:  # Nothing to wait for: the next report will do.
            return Decision.proceed(event.position + 1)
        if job.id not in self._undecided:
            return Decision.proceed(self._next_boundary(cluster, job))
        self._undecided.discard(job.id)
        self._divide(cluster)
        if job.id not in self._promising and self._somebody_waits(cluster):
            return SUSPEND
        return Decision.proceed(self._next_boundary(cluster, job))

    def on_prediction(self, cluster: Cluster, prediction: PredictionReady) -> None:
        """A job's outlook follows from its prediction; without a chance it ends."""
        if self._asked.get(prediction.job) != prediction.ticket:
            return
        del self._asked[prediction.job]
        job = cluster.jobs.get(prediction.job)
        if prediction.error or job is None or job.state.ended:
            return
        outlook = self._outlooks[job.id] = self.outlook(cluster, job, prediction.result.reaches)
        if outlook.confidence < self._least:
            cluster.terminate_job(job.id)
        self._divide(cluster)

    def on_refused(self, cluster: Cluster, verdict: Verdict) -> None:
        """What was not asked is not waited for."""
        if isinstance(verdict.command, Predict) and self._asked.get(verdict.command.job) == verdict.command.ticket:
            del self._asked[verdict.command.job]

    def demand(self, cluster: Cluster) -> int:
        """Machines that runs hold, that waiting jobs need, and that jobs still to be created will need."""
        waiting = cluster.count(JobState.PENDING, JobState.SUSPENDED, JobState.CREATING)
        return cluster.busy_machines() + waiting + cluster.experiment.jobs_left

    def confidences(self, cluster: Cluster) -> dict[str, float]:
        """p of each open job whose outlook is known."""
        return {job.id: self._outlooks[job.id].confidence for job in cluster.open_jobs() if job.id in self._outlooks}

    # ------------------------------------------------------------------------------------------------ what may be overridden

    def aim(self, cluster: Cluster) -> float | None:
        """The value of the metric that confidences are about; None: nothing is predicted yet.

        The experiment's target; without one, `step` better than the best report so far.
        """
        experiment, incumbent = cluster.experiment, cluster.incumbent
        if experiment.target is not None:
            return experiment.target
        if incumbent is None:
            return None
        return incumbent.value + (self._step if experiment.mode == "max" else -self._step)

    def is_poor(self, cluster: Cluster, job: JobView) -> bool:
        """Whether a job that has come to a boundary ends there: it has never been better than the kill threshold."""
        experiment = cluster.experiment
        threshold = experiment.kill_threshold
        if threshold is None:
            return False
        values = (point.metrics.get(experiment.metric, math.nan) for point in cluster.curve(job.id))
        return not any(math.isfinite(value) and experiment.better(value, threshold) for value in values)

    def outlook(self, cluster: Cluster, job: JobView, reaches: Sequence[float]) -> Outlook:
        """Confidence and expected remaining time of a job whose prediction has come.

        Args:
            cluster: The moment of `on_prediction`.
            job: Whose; it has not ended.
            reaches: The chance that a report is as good as `aim` was, at each position after the last one that was predicted from.
        """
        seconds = [point.seconds for point in cluster.curve(job.id)]
        epoch = math.fsum(seconds) / len(seconds) if seconds else 0.0
        end = cluster.experiments[job.experiment].end_at if job.experiment else cluster.experiment.end_at
        return outlook_of(reaches, end - cluster.now if end is not None else math.inf, epoch)

    # ----------------------------------------------------------------------------------------------------------- outlooks

    def _ask(self, cluster: Cluster, job: str) -> None:
        aim = self.aim(cluster)
        if aim is not None:
            self._asked[job] = cluster.predict(job, target=aim)

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

    # -------------------------------------------------------------------------------------------------------------- slots

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

    def _start(self, cluster: Cluster, job: JobView, machine: str) -> None:
        cluster.start_job(job.id, machine, until=job.max_position, allowed=self._next_boundary(cluster, job))

    def _create(self, cluster: Cluster) -> None:
        new = sum(job.attempt == 0 for job in cluster.idle_jobs()) + cluster.count(JobState.CREATING)
        for _ in range(min(cluster.experiment.jobs_left, max(self._ahead + len(cluster.idle_machines()) - new, 0))):
            cluster.create_job()

    def _next_boundary(self, cluster: Cluster, job: JobView) -> int:
        if job.id in self._asked or job.id in self._undecided:
            return min(job.position + 1, job.max_position)
        return min((self._passed.get(job.id, 0) + 1) * self._every(cluster), job.max_position)

    def _every(self, cluster: Cluster) -> int:
        """The boundary; of jobs without an end, the paper's for supervised learning."""
        longest = cluster.experiment.max_position
        return self._boundary or (max(longest // _FRACTION, 1) if longest < _ENDLESS else _BOUNDARY)


def _need_whole(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is {value!r}; it must be a whole number of at least 1")
