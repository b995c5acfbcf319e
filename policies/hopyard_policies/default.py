"""The default policy: starts idle jobs on idle slots, greedily or, with `barrier`, in rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hopyard.policy import (
    CONTINUE,
    ENDLESS,
    PARK,
    AnswerReady,
    Cluster,
    Decision,
    ExperimentChange,
    ExperimentView,
    IterationFinish,
    JobCreated,
    JobState,
    JobView,
    RunEnd,
    ShareChange,
    SlotsChange,
    Verdict,
)
from hopyard.policy.vocabulary import AmendRun
from hopyard_policies.base import job_creation
from hopyard_policies.base.amendments import Amendments
from hopyard_policies.elastic import Elastic, ElasticPolicy


class DefaultPolicy(ElasticPolicy):
    """The default policy of HyperDrive (section 4.2): starts as many idle jobs as there are idle slots.

    Without a barrier it is greedy ("schedule-as-it-goes"): each job trains to its maximum position without waiting for
    decisions, and statistics are ignored. Some jobs are created in advance, so that no slot waits for the generator.

    With `barrier` it is the paper's barrier-like epoch scheduling, which explores breadth-first. In a round each job of
    the cohort trains one epoch. The next round starts when every job that can still train has finished the current one.
    A cohort is all jobs of the experiment, or `width` jobs at a time, in order of creation. Within a round, jobs start
    in the order in which they wait; jobs still in memory continue first. A job that finishes its round is parked if no
    other job needs its slot, and continues without a save when the next round starts. It is suspended as soon as
    another job needs the slot. A job whose run is lost trains again from its last snapshot; for the barrier it is at the
    position that it had reached before the loss.

    Every up-call computes its decisions from the view alone, so lost runs, refused commands, failed jobs, an extended
    experiment and a change of slots need no special handling. The only state is the set of pending requests to change
    the end of a run. The experiments of a group are treated alike. No barrier waits for the jobs of a paused experiment or
    for HELD jobs.

    Args:
        barrier: Schedule in rounds.
        epoch: The length of a round in the experiment's unit, at least 1; ignored without `barrier`.
        width: Jobs in a cohort, at least 1; None: all. Requires `barrier`.
        ahead: Number of jobs created in advance of free slots, in 0..10000.
        elastic: How jobs use several slots each (`hopyard_policies.elastic`); None: one slot for each job. Not
            with `barrier`.

    Raises:
        ValueError: An argument is out of range.
    """

    every_iteration = False
    ends_jobs = False

    def __init__(
        self,
        barrier: bool = False,
        epoch: int = 1,
        width: int | None = None,
        ahead: int = 2,
        elastic: Mapping[str, Any] | None = None,
    ) -> None:
        for name, value, least in (("epoch", epoch, 1), ("width", width, 1), ("ahead", ahead, 0)):
            if type(value) is not int and not (value is None and name == "width"):
                raise ValueError(f"{name} is {value!r}; it must be a whole number")
            if value is not None and value < least:
                raise ValueError(f"{name} is {value}; it must be at least {least}")
        job_creation.need_at_most("ahead", ahead)
        if width is not None and not barrier:
            raise ValueError("width is the number of jobs in a round; it needs barrier: true")
        if elastic is not None and barrier:
            raise ValueError("elastic is for jobs that train on by themselves; leave it out, or barrier")
        super().__init__(elastic)
        self._barrier = barrier
        self._epoch = epoch
        self._width = width
        self._ahead = ahead
        self._amended = Amendments()

    def pauses(self, terms: ExperimentView) -> Mapping[int, int] | None:
        """Return that all jobs pause at the end of each round but the last; empty without a barrier, None if jobs train without end.

        Jobs that stay in memory between two rounds are counted too.
        """
        if not self._barrier:
            return {}
        if terms.max_position >= ENDLESS:
            return None
        return dict.fromkeys(range(self._epoch, terms.max_position, self._epoch), terms.jobs_left)

    # ---------------------------------------------------------------------------------------------------------- up-calls

    def allocate_jobs(self, cluster: Cluster) -> None:
        """Start idle jobs on idle slots and create jobs in advance.

        With a barrier, only jobs of the present cohort that have not finished the present round are started and created; parked
        jobs continue if the next round has begun.
        """
        if self._barrier:
            self._advance(cluster)
        elif self._elastic is not None:
            self._fill_elastically(cluster, self._elastic)
        else:
            left = self._fill_greedily(cluster)
            self._create(cluster, cluster.experiment.jobs_left, len(cluster.idle_slots()), left)

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        """Let jobs train to their maximum positions; with a barrier, decide what a job does at the end of its round.

        In a round each job of the cohort trains one epoch. If the job was the last one that had not finished the round, it
        continues into the next round. Otherwise it is parked, unless other jobs of the cohort need more than the idle slots, or the
        policy has more slots than its share: then the job's run ends, so that its slot becomes idle.
        """
        job = cluster.jobs[event.job]
        top = job.max_position
        if not event.at_until:
            return Decision.proceed(top)
        # A run that is ending already (for example because the experiment is paused) needs no decision.
        ending = job.state is JobState.SUSPENDING
        if not self._barrier or ending or event.report.finished or event.position >= top:
            return CONTINUE
        cohort = self._cohort(cluster)
        target = self._target(cluster, cohort)
        if target > event.position:
            self._amended.amend(cluster, event.job, min(target, top))
            self._advance(cluster, besides=event.job)
            return Decision.proceed(top)
        # The job has finished this round, and perhaps all others have, too.
        self._advance(cluster, besides=event.job)
        waiting = len(self._waiting(cluster, cohort, target)) + self._coming(cluster, cohort)
        if waiting > len(cluster.idle_slots()) or len(cluster.slots) > cluster.share:
            return CONTINUE
        return PARK

    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        """With a barrier, start the next round if the present one is complete, and give the ended run's slot to another job.

        In a round each job of the cohort trains one epoch. A round is complete when every job that can still train has finished
        it; the ended run may have been the last one that had not. Without a barrier, only the end of a profiling run is recorded.
        """
        self._amended.forget(run.job)
        super().on_run_end(cluster, run)
        self._advance(cluster)

    def on_job_created(self, cluster: Cluster, created: JobCreated) -> None:
        """With a barrier, start the new job in the present round (the epoch that all jobs of the cohort train), if there is a slot.

        If no slot is idle, a job that is parked because it has finished the round is suspended, so that the new job gets its slot.
        Without a barrier, nothing is done.
        """
        self._advance(cluster)

    def on_answer(self, cluster: Cluster, answer: AnswerReady) -> None:
        """Handle the answer to an amendment, a request to change the end of a run. If it came too late for a parked run, suspend it."""
        leaving = self._amended.heard(cluster, answer)
        if leaving is not None:
            self._advance(cluster, besides=leaving)

    def on_refused(self, cluster: Cluster, verdict: Verdict) -> None:
        """Delete the record of a refused request to change the end of a run; the next up-call decides from the new view."""
        if isinstance(verdict.command, AmendRun):
            self._amended.forget(verdict.command.job)

    def on_share_change(self, cluster: Cluster, change: ShareChange) -> None:
        """Reduce the slots in use to the share: with a barrier, suspend parked jobs; with elastic jobs, move jobs to smaller gangs.

        Other running jobs are not suspended; if they still exceed the share, the engine preempts them.
        """
        super().on_share_change(cluster, change)
        self._advance(cluster)

    def on_slots_change(self, cluster: Cluster, change: SlotsChange) -> None:
        """With a barrier, start the next round if the present one is complete, else start jobs that have not finished it.

        In a round each job of the cohort trains one epoch. Idle jobs may have lost their newest snapshots with the slots, and must
        then train again. Without a barrier, nothing is done.
        """
        self._advance(cluster)

    def on_experiment_change(self, cluster: Cluster, change: ExperimentChange) -> None:
        """With a barrier, start the next round if the present one is complete, else start jobs that have not finished it.

        In a round each job of the cohort trains one epoch. The change may concern the jobs that belong to the cohort, or their
        maximum positions. Without a barrier, nothing is done.
        """
        self._advance(cluster)

    def demand(self, cluster: Cluster) -> int:
        """Return the number of slots in use plus those that waiting jobs and jobs yet to be created need.

        With a barrier, only jobs of the present cohort that have not finished the present round are counted as waiting, and only jobs
        that will belong to the cohort as yet to be created.
        """
        if not self._barrier:
            return self._useful(cluster, cluster.queued() + self._unmade(cluster))
        cohort = self._cohort(cluster)
        waiting = len(self._waiting(cluster, cohort, self._target(cluster, cohort)))
        return self._useful(cluster, waiting + self._coming(cluster, cohort))

    # ------------------------------------------------------------------------------------------------------------ rounds

    def _advance(self, cluster: Cluster, besides: str = "") -> None:
        """Continue or start the jobs of the cohort that have not finished the present round; create jobs that the cohort lacks.

        In a round each job of the cohort trains one epoch. If these jobs need more than the idle slots, jobs that are parked because
        they have finished the round are suspended. Without a barrier, nothing is done.

        Args:
            cluster: The view of the up-call.
            besides: A job that is left out, because the caller decides on it; empty: none.
        """
        if not self._barrier or not cluster.experiment.running:
            return
        cohort = self._cohort(cluster)
        target = self._target(cluster, cohort)
        held = []
        for job in cohort:
            if not job.parked or job.state is not JobState.RUNNING or job.id in self._amended or job.id == besides:
                continue
            if max(job.high_water, job.position) < min(target, job.max_position):
                self._amended.amend(cluster, job.id, min(target, job.max_position))
            else:
                held.append(job)
        left = self._fill(cluster, self._waiting(cluster, cohort, target), target)
        spare = len(cluster.idle_slots())
        # Jobs without a slot get the slots of jobs that are parked at the barrier; the latest parked jobs are suspended first.
        leaving = cluster.count(JobState.SUSPENDING)
        needed = max(left - leaving, len(cluster.slots) - cluster.share - leaving, 0)
        for job in held[::-1][:needed]:
            cluster.suspend_job(job.id)
        room = self._coming(cluster, cohort) - cluster.count(JobState.CREATING)
        self._create(cluster, room, spare + max(len(held) - needed, 0), left)

    def _cohort(self, cluster: Cluster) -> list[JobView]:
        """Return the cohort: the jobs that train one epoch in the present round.

        With a width, the jobs in order of creation are divided into groups of `width`. The cohort is the first group in which at
        least one job has neither ended nor is HELD. If there is none, it is the last group if that is incomplete, else empty.
        Without a width it is all jobs that have neither ended nor are HELD. Jobs of paused experiments are left out.
        """
        running = {name for name, experiment in cluster.experiments.items() if experiment.running}
        if self._width is None:
            return [job for job in cluster.open_jobs() if job.experiment in running and _counts(job)]
        jobs = [job for job in cluster.jobs.values() if job.experiment in running]
        if not jobs:
            return jobs
        groups = [jobs[first : first + self._width] for first in range(0, len(jobs), self._width)]
        open_groups = (group for group in groups if any(map(_counts, group)))
        return next(open_groups, groups[-1] if len(groups[-1]) < self._width else [])

    def _target(self, cluster: Cluster, cohort: Sequence[JobView]) -> int:
        """Return the position at which the present round ends: the end of the epoch that the slowest job has begun.

        Jobs that have ended or are HELD are left out; a job yet to be created is at position 0. The result is at most the largest
        maximum position in the cohort. If no job is left, it is the end of the first epoch.
        A job that lost its run is at the position that it had reached before, even if it must train up to it again.
        """
        top = max((job.max_position for job in cohort), default=cluster.experiment.max_position)
        reached = [max(job.high_water, job.position) for job in cohort if _counts(job)]
        if self._coming(cluster, cohort):
            reached.append(0)
        return min((min(reached, default=0) // self._epoch + 1) * self._epoch, top)

    def _waiting(self, cluster: Cluster, cohort: Sequence[JobView], target: int) -> list[JobView]:
        """Return the idle jobs of the cohort that have not reached `target`, the end of the round, ordered as in `idle_jobs`."""
        members = {job.id for job in cohort}
        return [
            job
            for job in cluster.idle_jobs()
            if job.id in members
            and job.position < min(target, job.max_position)
            and (job.high_water < target or target >= job.max_position)
        ]

    def _coming(self, cluster: Cluster, cohort: Sequence[JobView]) -> int:
        """Return the number of jobs of the cohort that are being created or will be created."""
        left = cluster.experiment.jobs_left
        room = left if self._width is None else min(left, self._width - len(cohort))
        return room + sum(job.state is JobState.CREATING for job in cohort)

    # ----------------------------------------------------------------------------------------------------------- actions

    def _undisturbed(self, job: JobView) -> int:
        """Return the position up to which a run of the job trains without a decision.

        Subclasses that terminate jobs return the next position at which they judge the job.
        """
        return job.max_position

    def _fill(self, cluster: Cluster, waiting: Sequence[JobView], until: int) -> int:
        """Start the jobs `waiting` on idle slots, up to the position `until`; return how many still wait."""
        slots = cluster.idle_slots()
        for job, slot in zip(waiting, slots, strict=False):
            top = job.max_position
            cluster.start_job(job.id, slot.id, until=min(until, top), allowed=self._undisturbed(job))
        return max(len(waiting) - len(slots), 0)

    def _fill_greedily(self, cluster: Cluster) -> int:
        """Start idle jobs on idle slots; return how many still wait. For speed, only the jobs that start are read."""
        left = cluster.queued()
        for slot in cluster.idle_slots():
            job = cluster.get_idle_job()
            if job is None:
                break
            view = cluster.jobs[job]
            if view.position >= view.max_position:
                able = [view for view in cluster.idle_jobs() if view.position < view.max_position]
                return self._fill(cluster, able, cluster.experiment.max_position)
            cluster.start_job(job, slot.id, until=view.max_position, allowed=self._undisturbed(view))
            left -= 1
        return left

    def _fill_elastically(self, cluster: Cluster, elastic: Elastic) -> None:
        """Start idle jobs on gangs and create jobs in advance. If no job waits or will wait, move running jobs to wider gangs.

        Args:
            cluster: The view of the up-call.
            elastic: Assigns gangs to the jobs.
        """
        able = [job for job in cluster.idle_jobs() if job.position < job.max_position]
        waiting = elastic.start(
            cluster,
            elastic.first(able),
            self._unmade(cluster),
            self._way,
            lambda job, gang: self._start(cluster, job, gang),
        )
        elastic.widen(cluster, len(waiting) + self._unmade(cluster), self._way)
        self._create(cluster, cluster.experiment.jobs_left, len(elastic.slots(cluster)), len(waiting))

    def _start(self, cluster: Cluster, job: JobView, gang: tuple[str, ...]) -> None:
        cluster.start_job(job.id, gang, until=job.max_position, allowed=self._undisturbed(job))

    def _unmade(self, cluster: Cluster) -> int:
        """Return the number of jobs that are being created or can still be created."""
        return cluster.count(JobState.CREATING) + cluster.experiment.jobs_left

    def _create(self, cluster: Cluster, room: int, spare: int, waiting: int) -> None:
        """Create jobs for idle slots and in advance.

        Afterwards the jobs in creation and the `waiting` jobs together number `spare` plus the policy's parameter `ahead`, or fewer
        if `room` or the limit on jobs in creation does not allow more.

        Args:
            cluster: The view of the up-call.
            room: The maximum number of jobs to create.
            spare: The number of slots that jobs to be created can use: idle ones, and those whose parked job need not stay.
            waiting: The number of existing jobs that wait for slots.
        """
        ready = cluster.count(JobState.CREATING) + waiting
        for _ in range(job_creation.room(cluster, min(room, spare + self._ahead - ready))):
            cluster.create_job()


def _counts(job: JobView) -> bool:
    """Return whether the barrier waits for a job: it has neither ended nor is HELD."""
    return not job.state.ended and job.state is not JobState.HELD
