"""Base class of the policies of successive halving.

The *next rung* of a job is the rung at which its result is due, from its start or promotion until that result is recorded. A *free*
slot is an idle slot, or the slot of the run whose boundary is being decided.
"""

from __future__ import annotations

import abc
import copy
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
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
from hopyard.policy.vocabulary import ENDLESS, AmendRun, StartJob
from hopyard_policies.base.amendments import Amendments
from hopyard_policies.base.job_creation import need_at_most, room
from hopyard_policies.base.parameters import need_whole
from hopyard_policies.elastic import Elastic, ElasticPolicy
from hopyard_policies.halving.brackets import shortage
from hopyard_policies.halving.ladder import Ladder


class HalvingPolicy(ElasticPolicy):
    """Trains jobs from rung to rung. Subclasses define which bracket gets new configurations and which jobs are promoted.

    A free slot gets, in this order: a job whose run was lost before its rung; a job to be promoted; a new
    configuration. A run ends at its rung with a snapshot, unless its own job is the next one for its slot: then it saves at the
    rung and continues in memory. So a lost run trains again at most what it had trained since its last rung (ASHA paper, section 3.2:
    configurations are checkpointed and resumed).

    A job's result at a rung is its first value at or beyond the rung's position. If a job trains to its end before the
    rung, its last value is used; if it fails, it has no value, which is the worst result. A result is recorded once: later
    events, such as the loss of a snapshot, do not change it.

    Args:
        eta: The reduction factor, at least 2: one of eta results is promoted.
        rungs: The maximum number of rungs, in 1..64, or the list of their positions, the last one at R. A number determines
            r = R / eta^(rungs - 1), at least 1. None: 5. Excludes `r`.
        r: The least training of a configuration in bracket 0, at least 1, in the experiment's unit; None: follows from
            `rungs`. The rungs are R, R / eta, R / eta^2, ... that are not below r (`hopyard.policy.rungs.rung_positions`).
        brackets: The early-stopping rates of the brackets, not their number: bracket s starts at rung s of the ladder,
            so [0] is the bracket that stops earliest, and [0, 1, 2] are three brackets. None: the default of the
            policy.
        ahead: Number of jobs created in advance of free slots, in 0..10000.
        elastic: How jobs use several slots each (`hopyard_policies.elastic`); jobs with the most positions left to
            their rungs get most. None: one slot for each job.

    Raises:
        ValueError: An argument is out of range, or two exclude each other.
    """

    version = "2"
    every_iteration = False
    ends_jobs = False
    forks_newest = True  # It resumes only from the newest snapshot, so one requested at a lower rung is no longer kept.

    def __init__(
        self,
        eta: int = 4,
        rungs: int | Sequence[int] | None = None,
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
        """Elastic jobs to start in this up-call, collected before slots are divided among them."""
        self._configurations = -1
        self._queue: dict[str, None] = {}
        """Jobs that must train to their next rungs and have no run."""
        self._fresh: deque[str] = deque()
        """Jobs with a configuration that are not in a bracket yet."""
        self._amended = Amendments()
        self._started: dict[str, None] = {}
        """Jobs started in this up-call; the view passed to `demand` does not show them as started yet."""
        self._finished: set[str] = set()
        """Jobs whose program ended before the max position."""

    # ----------------------------------------------------------------------------------------------------- for subclasses

    @abc.abstractmethod
    def _set_up(self) -> None:
        """Create or widen brackets. Called when the maximum position or the number of configurations becomes known or changes."""

    @abc.abstractmethod
    def _beginnings(self) -> tuple[Sequence[int], Sequence[int]]:
        """Return the sizes of the first brackets, one for each early-stopping rate, in the order in which they are opened.

        `review` warns the user if none of them is large enough to train a configuration to its top rung.

        Returns:
            Two sequences with one item for each bracket: its number of configurations, and its number of rungs. The second one is
                empty if the brackets have no top rung.
        """

    @abc.abstractmethod
    def _standard(self, rungs: int) -> tuple[int, ...]:
        """Return the default early-stopping rates for a ladder of `rungs` rungs, ascending: bracket s starts at rung s."""

    @abc.abstractmethod
    def _growing(self, cluster: Cluster) -> int | None:
        """Return the index of the bracket for the next new configuration; None: all are full."""

    def _promotion(self, cluster: Cluster, staying: str) -> tuple[str, int] | None:
        """Return the next job to promote and the rung from which it is promoted; None: no job can be promoted and continue now.

        The rung is its number within the job's bracket, 0 at the bottom.

        Args:
            cluster: The view of the up-call.
            staying: The job whose run waits at its rung, so that it can continue although it is not idle; empty: none.
        """
        return None

    def _settle(self, cluster: Cluster) -> None:
        """Process new results: policies with synchronous brackets decide complete rungs here. By default nothing is done."""

    # ---------------------------------------------------------------------------------------------------------- up-calls

    def allocate_jobs(self, cluster: Cluster) -> None:
        """Start jobs on the idle slots; afterwards move elastic jobs to wider gangs."""
        self._look(cluster)
        self._fill(cluster)
        if self._elastic is not None:
            self._elastic.widen(cluster, self._others(cluster), self._way)

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        """Return whether a run continues. At its rung it saves, and continues in memory if its job is promoted at once."""
        self._look(cluster)
        job = cluster.jobs[event.job]
        if not event.at_until:
            return Decision.proceed(self._until(job))
        self._arrive(cluster, job, finished=event.report.finished)
        over = cluster.busy_slots() > cluster.share or not cluster.experiment.running
        if over or event.report.finished or job.state is not JobState.RUNNING or not self._fill(cluster, job.id):
            return CONTINUE
        until = self._until(job)
        self._amended.amend(cluster, job.id, until, snapshot_at=(event.position,))
        return Decision.proceed(until)

    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        """Queue the job to be trained further if it has not reached its next rung. If it has ended, record its result there."""
        super().on_run_end(cluster, run)
        self._look(cluster)
        self._amended.forget(run.job)
        job = cluster.jobs[run.job]
        if self._ladder.goal(job.id) is None:
            return
        self._queue[job.id] = None
        self._arrive(cluster, job)

    def on_job_created(self, cluster: Cluster, created: JobCreated) -> None:
        """Add the new configuration to those that are not in a bracket yet."""
        self._fresh.append(created.job)
        self._look(cluster)

    def on_generator_exhausted(self, cluster: Cluster, exhausted: GeneratorExhausted) -> None:
        """Update the brackets, because the experiment will have fewer configurations."""
        self._look(cluster)

    def on_experiment_change(self, cluster: Cluster, change: ExperimentChange) -> None:
        """Update the brackets, because more configurations or longer training may allow further promotions."""
        self._look(cluster)

    def on_answer(self, cluster: Cluster, answer: AnswerReady) -> None:
        """Handle the answer to an amendment, a request to change the end of a run. If it came too late for a parked run, suspend it."""
        self._amended.heard(cluster, answer)

    def on_refused(self, cluster: Cluster, verdict: Verdict) -> None:
        """If the engine refused to start a job, put the job back into the queue. Delete the record of a refused amendment.

        An amendment is a request to change the end of a run; after its refusal the run ends at its previous end, and
        `on_run_end` queues its job.
        """
        command = verdict.command
        if isinstance(command, StartJob) and self._ladder.goal(command.job) is not None:
            self._queue[command.job] = None
        elif isinstance(command, AmendRun):
            self._amended.forget(command.job)

    def demand(self, cluster: Cluster) -> int:
        """Return the number of slots in use plus those for queued jobs, possible promotions and new configurations."""
        queued = sum(map(cluster.waits, {**self._queue, **self._started}))
        waiting = queued + self._promotable(cluster) + self._ready(cluster) + cluster.experiment.jobs_left
        return self._useful(cluster, waiting)

    def _promotable(self, cluster: Cluster) -> int:
        """Return the number of jobs that could be promoted and started now if there were idle slots."""
        return 0

    def review(self, terms: ExperimentView) -> str:
        """Return a warning if there are too few configurations or iterations to stop some early and train one to the top rung.

        The warning has the numbers that fit. Empty: no warning.

        Args:
            terms: The experiment, with its number of jobs and its maximum position.

        Raises:
            ValueError: No rungs or brackets with the given parameters exist for this maximum position.
        """
        R = terms.max_position
        if self._ladder.r is not None and self._ladder.r > R:
            raise ValueError(
                f"r is {self._ladder.r}, which is beyond stop.max_iterations, {R}: no rung would come before the end; "
                f"give an r below {R}, or more iterations"
            )
        if alone := self._one_rung(R):
            return alone
        said = self._shortage(self._ladder.variant(), R, terms.jobs_left)
        remedies = " or ".join(self._remedies(R, terms.jobs_left)) if said else ""
        return f"{said}; use {remedies}" if remedies else said

    def _one_rung(self, R: int) -> str:
        """Return a warning if there is only the rung at the maximum position R, although the parameters do not ask for one rung."""
        ladder = self._ladder.variant()
        ladder.reach(R)
        eta, r = ladder.eta, ladder.r
        if len(ladder.positions) > 1 or ladder.infinite or (r is None and ladder.most == 1) or r == R:
            return ""
        longer = f"at least {eta * (r or 1)} iterations"
        if r is None:
            given = f"stop.max_iterations is {R}"
            remedies = f"{longer}{f', eta {R}' if R > 1 else ''}, or the policy default"
        else:
            given = f"r is {r} and stop.max_iterations is {R}"
            remedies = longer if eta > R else f"an r of at most {R // eta}"
        return f"{given}, which gives one rung at the end: no job is stopped early; use {remedies}"

    def pauses(self, terms: ExperimentView) -> Mapping[int, int] | None:
        """Return how many jobs are expected to be promoted from each rung: of each rung with k jobs floor(k / eta).

        A job whose slot is free at its promotion continues in memory, so fewer may be suspended. None: there is no top rung.
        """
        self._plan(terms.max_position, terms.jobs_left)
        widths, lengths = self._beginnings()
        total = sum(widths)
        if not lengths or not total:
            return None if not lengths else {}
        found: dict[int, int] = {}
        for width, length in zip(widths, lengths, strict=True):
            standing = width * terms.jobs_left // total
            for position in self._ladder.positions[-length:-1]:
                standing //= self._ladder.eta
                if standing:
                    found[position] = found.get(position, 0) + standing
        return found

    def _shortage(self, ladder: Ladder, R: int, n: int) -> str:
        """Return what `shortage` says about a new ladder with n configurations and the maximum position R."""
        draft = copy.copy(self)
        draft._ladder, draft._configurations = ladder, -1
        draft._plan(R, n)
        return shortage(*draft._beginnings(), ladder.eta)

    def _remedies(self, R: int, n: int) -> Iterator[str]:
        """Yield the changes of which each is enough: more configurations than n, a smaller eta, fewer rungs.

        No number of configurations is enough if the width of the brackets is a parameter and too small.
        """
        ladder = self._ladder
        few, enough = n, 2 * n + 2
        while enough < ENDLESS and self._shortage(ladder.variant(), R, enough):
            few, enough = enough, 2 * enough
        if enough < ENDLESS:
            while few + 1 < enough:
                middle = (few + enough) // 2
                few, enough = (middle, enough) if self._shortage(ladder.variant(), R, middle) else (few, middle)
            yield f"at least {enough} jobs"
        for eta in range(ladder.eta - 1, 1, -1):
            with suppress(ValueError):
                if not self._shortage(ladder.variant(eta), R, n):
                    yield f"eta {eta}"
                    break
        for rungs in range(ladder.most - 1, 1, -1):
            with suppress(ValueError):
                if not self._shortage(ladder.variant(rungs=rungs), R, n):
                    yield f"rungs {rungs}"
                    break

    def rungs(self, cluster: Cluster) -> tuple[Rung, ...]:
        """Return the rungs with their jobs for display, by bracket, from the bottom; empty before the first bracket exists."""
        return self._ladder.shown(self._width)

    def _width(self, bracket: int, rung: int) -> int | None:
        """Return the maximum number of jobs that can ever reach a rung; None: no limit.

        Args:
            bracket: The index of the bracket.
            rung: The number of the rung within the bracket, 0 at the bottom.
        """
        return None

    # ------------------------------------------------------------------------------------------------------------- rungs

    def _look(self, cluster: Cluster) -> None:
        """Prepare an up-call: update brackets, decide rungs, and record queued jobs that reached their rungs or have ended.

        The brackets follow from the experiment's present maximum position and number of jobs.
        """
        self._started = {}
        terms = cluster.experiment
        if terms.running:
            self._plan(terms.max_position, terms.jobs_left + len(cluster.jobs))
        self._settle(cluster)
        self._take_in(cluster)

    def _plan(self, R: int, n: int) -> None:
        """Set up rungs and brackets for n configurations and the maximum position R, if these have changed.

        Raises:
            ValueError: No such rungs or brackets exist.
        """
        if self._ladder.reach(R) or n != self._configurations:
            self._configurations = n
            self._set_up()

    def _completes(self, job: JobView) -> bool:
        """Return whether a job has nothing left to train.

        It has reached its maximum position, or its program has reported that it is complete.
        """
        return job.high_water >= job.max_position or job.id in self._finished

    def _until(self, job: JobView) -> int:
        goal = self._ladder.goal(job.id)
        assert goal is not None
        return min(goal, job.max_position)

    def _arrive(self, cluster: Cluster, job: JobView, finished: bool = False) -> bool:
        """Record the result of a job that has reached its rung or never will.

        Args:
            cluster: The view of the up-call.
            job: The job.
            finished: Whether its program has reported that it is complete; False for a program that failed.

        Returns:
            True if a result was recorded; False if no result is due or the job can still reach the rung.
        """
        target = self._ladder.goal(job.id)
        if target is None:
            return False
        if finished:
            self._finished.add(job.id)
        ends = finished or job.state is JobState.COMPLETED
        if job.high_water < target and not ends and not job.state.ended:
            return False
        value = self._value(cluster, job.id, target, ends)
        if value is None and not cluster.experiment.running:
            return False  # The metric of a paused experiment may be changed, so the result is read again when it is resumed.
        value = math.nan if value is None else value
        cost = -value if cluster.experiment.mode == "max" else value
        self._ladder.home(job.id).report(job.id, value, cost)
        self._queue.pop(job.id, None)
        self._settle(cluster)
        return True

    def _take_in(self, cluster: Cluster) -> None:
        """Record the results of queued jobs that have already trained to their rungs or have ended.

        A result may decide a rung and queue further jobs, so this repeats until no result is recorded.
        """
        while any(self._arrive(cluster, cluster.jobs[job]) for job in list(self._queue)):
            pass

    def _value(self, cluster: Cluster, job: str, target: int, ends: bool) -> float | None:
        """Return a job's result at a rung: the value of its metric.

        Args:
            cluster: The view of the up-call.
            job: The job.
            target: The position of the rung.
            ends: Whether the job's training is complete; False if it failed or can continue.

        Returns:
            The first value at or beyond the rung; for a job that finished before it, its last value; None if there is none.
        """
        metric = cluster.experiment.metric
        points = [p for p in cluster.curve(job) if metric in p.metrics]
        found = next((p.metrics[metric] for p in points if p.position >= target), None)
        if found is not None:
            return found
        return points[-1].metrics[metric] if points and ends else None

    # ---------------------------------------------------------------------------------------------------------- slots

    def _fill(self, cluster: Cluster, staying: str = "") -> bool:
        """Start jobs on the idle slots, and decide whether the run that waits at its rung continues.

        The slot of that run is free for other jobs, too. If another job is promoted to it, that job is queued until the slot
        is idle.

        Args:
            cluster: The view of the up-call.
            staying: The job whose run waits at its rung; empty: none.

        Returns:
            True if the job `staying` continues on its slot.
        """
        # Elastic jobs are only collected here, as many as can start, and get their slots at the end.
        idle = cluster.idle_slots()
        slots = deque(slot.id for slot in idle) if self._elastic is None else deque(self._elastic.slots(cluster))
        self._take_in(cluster)
        waiting = self._resume(cluster, slots)
        stays = staying in self._queue
        self._queue.pop(staying, None)
        # Jobs that already wait get the slots of suspending runs.
        free = bool(staying) and not stays and waiting <= cluster.count(JobState.SUSPENDING)
        while promotion := self._promotion(cluster, staying):
            job, rung = promotion
            if not free and (not slots or job == staying):
                break
            self._ladder.home(job).promote(job, rung)
            if self._arrive(cluster, cluster.jobs[job]):
                continue  # The job has already trained to its next rung.
            if job == staying:
                stays, staying, free = True, "", False
            elif slots:
                self._start(cluster, job, slots.popleft())
            else:
                self._queue[job] = None
                free = False
        else:
            self._grow(cluster, slots)
        if self._elastic is not None:
            self._begin(cluster, self._elastic)
        return stays

    def _resume(self, cluster: Cluster, slots: deque[str]) -> int:
        """Start queued jobs that have no run, in order; return how many still wait for a slot.

        Args:
            cluster: The view of the up-call.
            slots: The ids of idle slots; those used are removed.
        """
        ready = [job for job in self._queue if cluster.waits(job)]
        if self._elastic is not None:
            ready = [view.id for view in self._elastic.first([cluster.jobs[job] for job in ready])]
        for job, slot in zip(ready, list(slots), strict=False):
            self._start(cluster, job, slot)
            slots.popleft()
        return sum(job in self._queue for job in ready)

    def _grow(self, cluster: Cluster, slots: deque[str]) -> None:
        """Start new configurations on the remaining idle slots, and create jobs in advance.

        Args:
            cluster: The view of the up-call.
            slots: The ids of idle slots; those used are removed.
        """
        waiting: list[str] = []
        while self._fresh and slots:
            job = self._fresh.popleft()
            if not cluster.waits(job):
                waiting += [] if cluster.jobs[job].state.ended else [job]  # The job or its experiment is paused.
                continue
            home = self._growing(cluster)
            if home is None:
                waiting.append(job)
                break
            self._ladder.enter(job, home)
            self._start(cluster, job, slots.popleft())
        self._fresh.extendleft(reversed(waiting))
        wanted = len(slots) + self._ahead - self._ready(cluster)
        for _ in range(room(cluster, min(wanted, cluster.experiment.jobs_left))):
            cluster.create_job()

    def _ready(self, cluster: Cluster) -> int:
        """Return the number of new configurations in creation or waiting, without jobs that are HELD or of paused experiments."""
        return sum(map(cluster.waits, self._fresh)) + cluster.count(JobState.CREATING)

    def _start(self, cluster: Cluster, job: str, slot: str) -> None:
        self._queue.pop(job, None)
        if self._elastic is not None:
            self._gangs.append(cluster.jobs[job])
        else:
            self._start_on(cluster, cluster.jobs[job], (slot,))

    def _start_on(self, cluster: Cluster, job: JobView, slots: tuple[str, ...]) -> None:
        self._started[job.id] = None
        until = self._until(job)
        cluster.start_job(job.id, slots, until=until, allowed=until)

    def _begin(self, cluster: Cluster, elastic: Elastic) -> None:
        """Start the jobs of `_gangs`, which this up-call has selected to start, on gangs; queue those for which no gang is free.

        Args:
            cluster: The view of the up-call.
            elastic: Assigns gangs to the jobs.
        """
        jobs, self._gangs = self._gangs, []
        coming = self._others(cluster)
        for job in elastic.start(
            cluster, jobs, coming, self._way, lambda job, gang: self._start_on(cluster, job, gang)
        ):
            self._queue[job.id] = None

    def _others(self, cluster: Cluster) -> int:
        """Return the number of jobs that wait for slots, may be promoted or can be created, without those that this up-call starts."""
        queued = sum(cluster.waits(job) for job in self._queue)
        return queued + self._promotable(cluster) + self._ready(cluster) + cluster.experiment.jobs_left

    def _way(self, job: JobView) -> int:
        """Return the number of positions that a job must still train to its next rung; 0: it has no next rung."""
        goal = self._ladder.goal(job.id)
        return max(min(goal, job.max_position) - job.position, 0) if goal is not None else 0
