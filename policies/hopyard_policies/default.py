"""The default policy: idle jobs onto idle machines; with `barrier`, in rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hopyard.policy import (
    CONTINUE,
    PARK,
    AnswerReady,
    Cluster,
    Decision,
    ExperimentChange,
    IterationFinish,
    JobCreated,
    JobState,
    JobView,
    MachinesChange,
    RunEnd,
    ShareChange,
    Verdict,
)
from hopyard.policy.vocabulary import AmendRun
from hopyard_policies.base import job_creation
from hopyard_policies.base.amendments import Amendments
from hopyard_policies.elastic import Elastic, ElasticPolicy


class DefaultPolicy(ElasticPolicy):
    """The default SAP of HyperDrive (section 4.2): starts as many idle jobs as there are idle machines.

    Without a barrier it is greedy ("schedule-as-it-goes"): each job runs to its end without waiting for any decision, and
    statistics are ignored. A few jobs are created ahead, so that no machine ever waits for the generator.

    With `barrier` it is the section's barrier-like epoch scheduling, which explores breadth-first: in a round each job
    trains one epoch, and none starts the next round before every job of the cohort that can still train has finished
    this one. A cohort is all jobs of the experiment, or `width` of them at a time, in order of creation. Within a round
    jobs go first come, first served, except that those still in memory go on first: a job that ends its round while
    nobody waits for its machine is parked there, and goes on without a save when the barrier opens; it is suspended as
    soon as another job needs the machine. A job whose run is lost trains again from its last snapshot, but does not
    close a barrier that it had passed.

    Everything is derived from the view in each up-call, so lost runs, refused commands, failed jobs, an extended
    experiment and machines that come and go need no treatment of their own. Kept in memory are only the amendments under
    way. The experiments of a group are served alike; the jobs of one that is paused close no barrier, nor do jobs that a
    person has paused.

    Args:
        barrier: Schedule in rounds.
        epoch: Units in a round, at least 1; of no effect without `barrier`.
        width: Jobs in a cohort, at least 1; None: all. Needs `barrier`.
        ahead: Jobs created beyond those that have a machine, in 0..10000.
        elastic: How jobs train on several machines each, and on how many (`hopyard_policies.elastic`); None: each on one.
            Not with `barrier`.

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

    # ---------------------------------------------------------------------------------------------------------- up-calls

    def allocate_jobs(self, cluster: Cluster) -> None:
        """Starts idle jobs on idle machines and creates some ahead."""
        if self._barrier:
            self._advance(cluster)
        elif self._elastic is not None:
            self._fill_elastically(cluster, self._elastic)
        else:
            left = self._fill_greedily(cluster)
            self._create(cluster, cluster.experiment.jobs_left, len(cluster.idle_machines()), left)

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        """Lets jobs train on to their ends; with a barrier, opens it, or parks or suspends the job in front of it."""
        job = cluster.jobs[event.job]
        top = job.max_position
        if not event.at_until:
            return Decision.proceed(top)
        # A run that is ending already (the experiment is paused, say) ends as it was told.
        ending = job.state is JobState.SUSPENDING
        if not self._barrier or ending or event.report.finished or event.position >= top:
            return CONTINUE
        cohort = self._cohort(cluster)
        target = self._target(cluster, cohort)
        if target > event.position:
            self._amended.amend(cluster, event.job, min(target, top))
            self._advance(cluster, besides=event.job)
            return Decision.proceed(top)
        # Beyond its round already, it may have opened the barrier for the others.
        self._advance(cluster, besides=event.job)
        waiting = len(self._waiting(cluster, cohort, target)) + self._coming(cluster, cohort)
        if waiting > len(cluster.idle_machines()) or len(cluster.machines) > cluster.share:
            return CONTINUE
        return PARK

    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        """A job that ended may have been the last that the barrier waited for."""
        self._amended.forget(run.job)
        super().on_run_end(cluster, run)
        self._advance(cluster)

    def on_job_created(self, cluster: Cluster, created: JobCreated) -> None:
        """A new job joins the round: it may need a machine on which another is parked."""
        self._advance(cluster)

    def on_answer(self, cluster: Cluster, answer: AnswerReady) -> None:
        """An amended run goes on by itself; one that could not be amended is taken off its machine."""
        leaving = self._amended.heard(cluster, answer)
        if leaving is not None:
            self._advance(cluster, besides=leaving)

    def on_refused(self, cluster: Cluster, verdict: Verdict) -> None:
        """Forgets a refused amendment; the next up-call looks at everything anew."""
        if isinstance(verdict.command, AmendRun):
            self._amended.forget(verdict.command.job)

    def on_share_change(self, cluster: Cluster, change: ShareChange) -> None:
        """Parked jobs give up their machines first; on several machines, jobs make room for each other."""
        super().on_share_change(cluster, change)
        self._advance(cluster)

    def on_machines_change(self, cluster: Cluster, change: MachinesChange) -> None:
        """An idle job may have gone back to an older snapshot."""
        self._advance(cluster)

    def on_experiment_change(self, cluster: Cluster, change: ExperimentChange) -> None:
        """What the others of a cohort wait for may have changed."""
        self._advance(cluster)

    def demand(self, cluster: Cluster) -> int:
        """Machines that runs hold, that waiting jobs need, and that jobs still to be created will need."""
        if not self._barrier:
            return self._useful(cluster, cluster.queued() + self._unmade(cluster))
        cohort = self._cohort(cluster)
        waiting = len(self._waiting(cluster, cohort, self._target(cluster, cohort)))
        return self._useful(cluster, waiting + self._coming(cluster, cohort))

    # ------------------------------------------------------------------------------------------------------------ rounds

    def _advance(self, cluster: Cluster, besides: str = "") -> None:
        """Brings the cohort as far as its barrier allows; `besides` is a job that the caller sees to."""
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
        spare = len(cluster.idle_machines())
        # Who waits in vain gets the machines of those who wait for nothing but the barrier; latest jobs first.
        leaving = cluster.count(JobState.SUSPENDING)
        needed = max(left - leaving, len(cluster.machines) - cluster.share - leaving, 0)
        for job in held[::-1][:needed]:
            cluster.suspend_job(job.id)
        room = self._coming(cluster, cohort) - cluster.count(JobState.CREATING)
        self._create(cluster, room, spare + max(len(held) - needed, 0), left)

    def _cohort(self, cluster: Cluster) -> list[JobView]:
        """The jobs that share a barrier now: the first group of `width` with one that has not ended, else the last.

        Without a width those that have ended are left out: they hold no barrier, and there may be many.
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
        """Where the present round ends: what a job once reported counts, even if it must train it again."""
        top = max((job.max_position for job in cohort), default=cluster.experiment.max_position)
        reached = [max(job.high_water, job.position) for job in cohort if _counts(job)]
        if self._coming(cluster, cohort):
            reached.append(0)
        return min((min(reached, default=0) // self._epoch + 1) * self._epoch, top)

    def _waiting(self, cluster: Cluster, cohort: Sequence[JobView], target: int) -> list[JobView]:
        """Idle jobs of the cohort that this round still wants, first come first."""
        members = {job.id for job in cohort}
        return [
            job
            for job in cluster.idle_jobs()
            if job.id in members
            and job.position < min(target, job.max_position)
            and (job.high_water < target or target >= job.max_position)
        ]

    def _coming(self, cluster: Cluster, cohort: Sequence[JobView]) -> int:
        """Jobs of the cohort that are being created or will be."""
        left = cluster.experiment.jobs_left
        room = left if self._width is None else min(left, self._width - len(cohort))
        return room + sum(job.state is JobState.CREATING for job in cohort)

    # ----------------------------------------------------------------------------------------------------------- actions

    def _undisturbed(self, job: JobView) -> int:
        """How far a run of the job trains without a decision; policies that stop jobs before their ends ask earlier."""
        return job.max_position

    def _fill(self, cluster: Cluster, waiting: Sequence[JobView], until: int) -> int:
        """Starts waiting jobs on idle machines; returns how many still wait."""
        machines = cluster.idle_machines()
        for job, machine in zip(waiting, machines, strict=False):
            top = job.max_position
            cluster.start_job(job.id, machine.id, until=min(until, top), allowed=self._undisturbed(job))
        return max(len(waiting) - len(machines), 0)

    def _fill_greedily(self, cluster: Cluster) -> int:
        """Starts idle jobs, first come first, on idle machines; returns how many still wait. Looks at no more than it starts."""
        left = cluster.queued()
        for machine in cluster.idle_machines():
            job = cluster.get_idle_job()
            if job is None:
                break
            view = cluster.jobs[job]
            if view.position >= view.max_position:
                able = [view for view in cluster.idle_jobs() if view.position < view.max_position]
                return self._fill(cluster, able, cluster.experiment.max_position)
            cluster.start_job(job, machine.id, until=view.max_position, allowed=self._undisturbed(view))
            left -= 1
        return left

    def _fill_elastically(self, cluster: Cluster, elastic: Elastic) -> None:
        """Starts idle jobs on gangs, first come first; when none waits and none is to come, those that train get what is idle."""
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
        """Jobs that are being created or will be."""
        return cluster.count(JobState.CREATING) + cluster.experiment.jobs_left

    def _create(self, cluster: Cluster, room: int, spare: int, waiting: int) -> None:
        """Creates at most `room` jobs, for machines to spare and some ahead; `waiting` are there already."""
        ready = cluster.count(JobState.CREATING) + waiting
        for _ in range(job_creation.room(cluster, min(room, spare + self._ahead - ready))):
            cluster.create_job()


def _counts(job: JobView) -> bool:
    """Whether a barrier waits for a job."""
    return not job.state.ended and job.state is not JobState.HELD
