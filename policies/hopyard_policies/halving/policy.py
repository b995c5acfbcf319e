"""What the policies of successive halving have in common: jobs that train to rungs, wait there, and go on when they are promoted."""

from __future__ import annotations

import abc
import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from hopyard.policy import (
    CONTINUE,
    AnswerReady,
    Cluster,
    Decision,
    ExperimentChange,
    ExperimentView,
    GeneratorExhausted,
    IterationFinish,
    JobCreated,
    JobState,
    JobView,
    RunEnd,
    Verdict,
)
from hopyard.policy.rungs import Rung
from hopyard.policy.vocabulary import AmendRun, StartJob
from hopyard_policies.base.amendments import Amendments
from hopyard_policies.base.job_creation import need_at_most, room
from hopyard_policies.base.parameters import need_whole
from hopyard_policies.elastic import Elastic, ElasticPolicy
from hopyard_policies.halving.brackets import shortage
from hopyard_policies.halving.ladder import Ladder


class HalvingPolicy(ElasticPolicy):
    """Trains jobs from rung to rung of brackets. Which bracket grows and who is promoted, subclasses say.

    A machine that is free gets, in this order: a job that was on its way to a rung and lost its run, for its worker had been given it
    already; a job to be promoted; a new configuration. A run ends at its rung with a snapshot, unless its own job is what its
    machine would get next: then it goes on in memory.

    A job's result at a rung is the first value that it reported at or beyond the rung's position. One that trains to its end before
    has the last value that it reported, and one that fails has none, which is worst. A result at a rung counts once; what
    happens to the job after that, such as the loss of its snapshot, does not change it.

    Args:
        eta: The reduction factor: of so many results one goes on. At least 2.
        rungs: The most rungs, in 1..64: so r is R / eta^(rungs - 1), and at least 1. None: 5, unless `r` is given, which excludes it.
        r: What a configuration of bracket 0 trains at least, at least 1, in the experiment's unit; None: it follows from `rungs`.
        brackets: The brackets by their early-stopping rates, not how many they are: the paper's bracket s begins at rung s of the
            ladder, so [0] is the one that stops earliest, and [0, 1, 2] are three. None: the policy's own.
        ahead: Jobs created beyond those that have a machine, in 0..10000.
        elastic: How jobs train on several machines each, and on how many (`hopyard_policies.elastic`): those with the longest way to
            their rungs get most. None: each on one.

    Raises:
        ValueError: An argument is out of range, or two do not go together.
    """

    every_iteration = False
    ends_jobs = False

    def __init__(
        self,
        eta: int = 4,
        rungs: int | None = None,
        r: int | None = None,
        brackets: Sequence[int] | None = None,
        ahead: int = 2,
        elastic: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(elastic)
        need_whole("ahead", ahead, 0)
        need_at_most("ahead", ahead)
        self._ladder = Ladder(eta, rungs, r, brackets)
        self._ahead = ahead
        self._gangs: list[JobView] = []
        """Jobs that this answer starts once it is known who they are: elastic ones."""
        self._configurations = -1
        self._queue: dict[str, None] = {}
        """Jobs on their way to a rung that have no run."""
        self._fresh: deque[str] = deque()
        """Jobs that have a configuration and belong to no bracket so far."""
        self._amended = Amendments()
        self._started: dict[str, None] = {}
        """Jobs that this answer starts: the view on which `demand` is asked does not show it."""
        self._finished: set[str] = set()
        """Jobs whose program had no more to train, before its end."""

    # ------------------------------------------------------------------------------------------------ what subclasses say

    @abc.abstractmethod
    def _set_up(self) -> None:
        """The terms are known, or have changed: brackets may be made or widened."""

    @abc.abstractmethod
    def _beginnings(self) -> tuple[Sequence[int], Sequence[int]]:
        """How many configurations the first brackets get, and how many rungs they have."""

    @abc.abstractmethod
    def _standard(self, rungs: int) -> tuple[int, ...]:
        """The early-stopping rates of the brackets on so many rungs if none are given, rising."""

    @abc.abstractmethod
    def _growing(self, cluster: Cluster) -> int | None:
        """The bracket that the next new configuration belongs to; None: there is room in none."""

    def _promotion(self, cluster: Cluster, staying: str) -> tuple[str, int] | None:
        """The next job to be promoted and its rung, if it can go on now; `staying` has a run, which can."""
        return None

    def _settle(self, cluster: Cluster) -> None:
        """Results have come; whoever decides on whole rungs does so now."""

    # ---------------------------------------------------------------------------------------------------------- up-calls

    def allocate_jobs(self, cluster: Cluster) -> None:
        """Gives idle machines what comes next."""
        self._look(cluster)
        self._fill(cluster)
        if self._elastic is not None:
            self._elastic.widen(cluster, self._others(cluster), self._way)

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        """A run has come to its rung: its job goes on in memory if it is promoted at once, and otherwise leaves its machine."""
        self._look(cluster)
        job = cluster.jobs[event.job]
        if not event.at_until:
            return Decision.proceed(self._until(job))
        self._arrive(cluster, job, finished=event.report.finished)
        over = cluster.busy_machines() > cluster.share or not cluster.experiment.running
        if over or event.report.finished or job.state is not JobState.RUNNING or not self._fill(cluster, job.id):
            return CONTINUE
        until = self._until(job)
        self._amended.amend(cluster, job.id, until)
        return Decision.proceed(until)

    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        """A job that has not come to its rung is queued for it again; one that never will has the worst result there."""
        super().on_run_end(cluster, run)
        self._look(cluster)
        self._amended.forget(run.job)
        job = cluster.jobs[run.job]
        if self._ladder.goal(job.id) is None:
            return
        self._queue[job.id] = None
        self._arrive(cluster, job)

    def on_job_created(self, cluster: Cluster, created: JobCreated) -> None:
        """A new configuration waits for a bracket."""
        self._fresh.append(created.job)
        self._look(cluster)

    def on_generator_exhausted(self, cluster: Cluster, exhausted: GeneratorExhausted) -> None:
        """There will be fewer configurations than was thought."""
        self._look(cluster)

    def on_experiment_change(self, cluster: Cluster, change: ExperimentChange) -> None:
        """More configurations or longer training may make promotions possible that were not."""
        self._look(cluster)

    def on_answer(self, cluster: Cluster, answer: AnswerReady) -> None:
        """A run that was to go on and could not leaves its machine."""
        self._amended.heard(cluster, answer)

    def on_refused(self, cluster: Cluster, verdict: Verdict) -> None:
        """What could not be started is queued; a refused amendment ends the run, and its end queues the job."""
        command = verdict.command
        if isinstance(command, StartJob) and self._ladder.goal(command.job) is not None:
            self._queue[command.job] = None
        elif isinstance(command, AmendRun):
            self._amended.forget(command.job)

    def demand(self, cluster: Cluster) -> int:
        """Machines that runs hold, that jobs on their way or to be promoted need, and that new configurations will need."""
        queued = sum(map(cluster.waits, {**self._queue, **self._started}))
        waiting = queued + self._promotable(cluster) + self._ready(cluster) + cluster.experiment.jobs_left
        return self._useful(cluster, waiting)

    def _promotable(self, cluster: Cluster) -> int:
        """Jobs that could be promoted now if there were machines."""
        return 0

    def review(self, terms: ExperimentView) -> str:
        """Says when there are too few configurations to train one to the end.

        Raises:
            ValueError: There can be no such brackets.
        """
        R = terms.max_position
        if self._ladder.r is not None and self._ladder.r > R:
            raise ValueError(
                f"r is {self._ladder.r}, which is beyond stop.max_iterations, {R}: no rung would come before the end; "
                f"give an r below {R}, or more iterations"
            )
        self._plan(R, terms.jobs_left)
        return shortage(*self._beginnings(), self._ladder.eta)

    def rungs(self, cluster: Cluster) -> tuple[Rung, ...]:
        """Who stands where, by bracket, from the bottom."""
        return self._ladder.shown(self._width)

    def _width(self, bracket: int, rung: int) -> int | None:
        """The most jobs that may ever stand at a rung; None: any number."""
        return None

    # ------------------------------------------------------------------------------------------------------------- rungs

    def _look(self, cluster: Cluster) -> None:
        """Begins an up-call: takes note of the terms as they are now, and of who is at a rung or has ended though no run tells."""
        self._started = {}
        terms = cluster.experiment
        if terms.running:
            self._plan(terms.max_position, terms.jobs_left + len(cluster.jobs))
        self._settle(cluster)
        self._take_in(cluster)

    def _plan(self, R: int, n: int) -> None:
        """Sets up rungs and brackets for n configurations and R, as far as they have changed.

        Raises:
            ValueError: There can be no such brackets.
        """
        if self._ladder.reach(R) or n != self._configurations:
            self._configurations = n
            self._set_up()

    def _completes(self, job: JobView) -> bool:
        """Whether a job has nothing more to train: it is complete, or its run is about to make it so."""
        return job.high_water >= job.max_position or job.id in self._finished

    def _until(self, job: JobView) -> int:
        goal = self._ladder.goal(job.id)
        assert goal is not None
        return min(goal, job.max_position)

    def _arrive(self, cluster: Cluster, job: JobView, finished: bool = False) -> bool:
        """Notes the result of a job that has come to its rung, or will never come; returns whether it has."""
        target = self._ladder.goal(job.id)
        if target is None:
            return False
        if finished:
            self._finished.add(job.id)
        ends = finished or job.state is JobState.COMPLETED
        if job.high_water < target and not ends and not job.state.ended:
            return False
        value = self._value(cluster, job.id, target, ends)
        cost = -value if cluster.experiment.mode == "max" else value
        self._ladder.home(job.id).report(job.id, value, cost)
        self._queue.pop(job.id, None)
        self._settle(cluster)
        return True

    def _take_in(self, cluster: Cluster) -> None:
        """Notes who of those that are queued has trained so far already, or has ended.

        What they bring may decide a rung, and queue others.
        """
        while any(self._arrive(cluster, cluster.jobs[job]) for job in list(self._queue)):
            pass

    def _value(self, cluster: Cluster, job: str, target: int, ends: bool) -> float:
        """The first value at or beyond a position; of a job that ends before, the last value; NaN without one."""
        metric = cluster.experiment.metric
        points = [p for p in cluster.curve(job) if metric in p.metrics]
        found = next((p.metrics[metric] for p in points if p.position >= target), None)
        if found is not None:
            return found
        return points[-1].metrics[metric] if points and ends else math.nan

    # ---------------------------------------------------------------------------------------------------------- machines

    def _fill(self, cluster: Cluster, staying: str = "") -> bool:
        """Gives each idle machine what comes next; returns whether `staying` goes on, a job that waits in memory at its rung.

        The machine of `staying` is free, too. If another job is to be promoted on it, that one is queued until it is left.
        """
        # Elastic jobs are found first, as many as can start, and get their machines then.
        idle = cluster.idle_machines()
        machines = (
            deque(machine.id for machine in idle) if self._elastic is None else deque(self._elastic.slots(cluster))
        )
        self._take_in(cluster)
        waiting = self._resume(cluster, machines)
        stays = staying in self._queue
        self._queue.pop(staying, None)
        # Machines that are being left are for those who wait already.
        free = bool(staying) and not stays and waiting <= cluster.count(JobState.SUSPENDING)
        while promotion := self._promotion(cluster, staying):
            job, rung = promotion
            if not free and (not machines or job == staying):
                break
            self._ladder.home(job).promote(job, rung)
            if self._arrive(cluster, cluster.jobs[job]):
                continue  # It has trained so far already.
            if job == staying:
                stays, staying, free = True, "", False
            elif machines:
                self._start(cluster, job, machines.popleft())
            else:
                self._queue[job] = None
                free = False
        else:
            self._grow(cluster, machines)
        if self._elastic is not None:
            self._begin(cluster, self._elastic)
        return stays

    def _resume(self, cluster: Cluster, machines: deque[str]) -> int:
        """Sends on those on their way that have no run, first come first; returns how many still wait for a machine."""
        ready = [job for job in self._queue if cluster.waits(job)]
        if self._elastic is not None:
            ready = [view.id for view in self._elastic.first([cluster.jobs[job] for job in ready])]
        for job, machine in zip(ready, list(machines), strict=False):
            self._start(cluster, job, machine)
            machines.popleft()
        return sum(job in self._queue for job in ready)

    def _grow(self, cluster: Cluster, machines: deque[str]) -> None:
        """Starts new configurations on machines that nothing else needs, and has some made ahead."""
        waiting: list[str] = []
        while self._fresh and machines:
            job = self._fresh.popleft()
            if not cluster.waits(job):
                waiting += [] if cluster.jobs[job].state.ended else [job]  # It, or its experiment, is paused.
                continue
            home = self._growing(cluster)
            if home is None:
                waiting.append(job)
                break
            self._ladder.enter(job, home)
            self._start(cluster, job, machines.popleft())
        self._fresh.extendleft(reversed(waiting))
        wanted = len(machines) + self._ahead - self._ready(cluster)
        for _ in range(room(cluster, min(wanted, cluster.experiment.jobs_left))):
            cluster.create_job()

    def _ready(self, cluster: Cluster) -> int:
        """New configurations that may begin, and those on their way; not the ones that are paused."""
        return sum(map(cluster.waits, self._fresh)) + cluster.count(JobState.CREATING)

    def _start(self, cluster: Cluster, job: str, machine: str) -> None:
        self._queue.pop(job, None)
        if self._elastic is not None:
            self._gangs.append(cluster.jobs[job])
        else:
            self._start_on(cluster, cluster.jobs[job], (machine,))

    def _start_on(self, cluster: Cluster, job: JobView, machines: tuple[str, ...]) -> None:
        self._started[job.id] = None
        until = self._until(job)
        cluster.start_job(job.id, machines, until=until, allowed=until)

    def _begin(self, cluster: Cluster, elastic: Elastic) -> None:
        """Starts those that are to start on gangs; who gets none is queued."""
        jobs, self._gangs = self._gangs, []
        coming = self._others(cluster)
        for job in elastic.start(
            cluster, jobs, coming, self._way, lambda job, gang: self._start_on(cluster, job, gang)
        ):
            self._queue[job.id] = None

    def _others(self, cluster: Cluster) -> int:
        """Jobs that wait for machines, or will, beside those that this answer starts."""
        queued = sum(cluster.waits(job) for job in self._queue)
        return queued + self._promotable(cluster) + self._ready(cluster) + cluster.experiment.jobs_left

    def _way(self, job: JobView) -> int:
        """Units to the rung that a job is on its way to."""
        goal = self._ladder.goal(job.id)
        return max(min(goal, job.max_position) - job.position, 0) if goal is not None else 0
