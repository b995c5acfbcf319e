"""Drives a tuner (an inner policy) on trials that an outer policy trains.

A *trial* is a job as the tuner sees it. The tuner starts trials on virtual slots; such a run is a *virtual run*. The outer policy
trains the trials on real slots and reports the progress, which this module passes to the tuner as up-calls.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from hopyard.policy import (
    Cluster,
    CurvePoint,
    Decision,
    ExperimentChange,
    Incumbent,
    IterationFinish,
    JobCreated,
    JobState,
    Policy,
    Report,
    RunEnd,
    RunEndReason,
    Verdict,
    hears_statistics,
    make_up_call,
)
from hopyard.policy.rungs import Rung
from hopyard.policy.vocabulary import (
    AllocateJobs,
    AmendRun,
    AnswerJob,
    AnswerReady,
    ApplicationStat,
    Call,
    Command,
    CreateJob,
    DecisionKind,
    ForkJob,
    ReleaseSlot,
    ReserveSlot,
    StartJob,
    SuspendJob,
    TerminateJob,
)
from hopyard_policies.inner_policy.progress import Progress, value
from hopyard_policies.inner_policy.trials import Origin, TrialRun, Trials, TrialState
from hopyard_policies.inner_policy.virtual_slots import InnerCluster, Scene

MOST: Final = 1000
"""Maximum number of trials that a tuner may train at a time, because a tuner reads all virtual slots in every up-call."""

_AHEAD: Final = 16
_RESTLESS: Final = 100_000
"""Maximum number of up-calls in one turn; a tuner that makes further requests after them is an error."""

_TELLING: Final = (JobState.COMPLETED, JobState.TERMINATED, JobState.FAILED, JobState.HELD)
"""Job states into which a job may change without a decision of the tuner."""


class TunerState:
    """Runs a tuner (an inner policy), and stores what the tuner knows about each of its trials.

    `hear` queues up-calls for the tuner; `turn` makes them and carries out the tuner's decisions.

    Args:
        tuner: The policy that decides up to which position trials are trained.
        width: The number of trials that the tuner may train at a time; None: all. At most `MOST`.
        hidden: Jobs that the tuner does not see; the collection may change.

    Attributes:
        tuner: The tuner, as given.
        states: What the tuner knows about each trial, by id.
        width: As given; it may be changed between turns.
        copies: Whether the tuner forks trials; then trials are saved at each position where it stops them.
        made: The jobs whose creation the tuner requested, in order; the creation may have failed for some.
        best: The best result that was passed to the tuner; None: none yet.
        changes: A counter, increased when any of `states` changes.
    """

    def __init__(self, tuner: Policy, width: int | None, hidden: Collection[str] = ()) -> None:
        self.tuner, self.width = tuner, width
        self.states: dict[str, TrialState] = {}
        self._hidden = hidden
        self._busy: dict[str, str] = {}
        self._reserved: set[str] = set()
        self._calls: deque[Call | Verdict] = deque()
        self._tickets: set[str] = set()
        self._attention = True
        self.changes = 0
        self._looked: int | None = None  # Value of `progress.moves` at the last check; None: changed here since.
        self._hears_each = tuner.every_iteration or hears_statistics(tuner)
        self.copies = tuner.copies
        self.made: dict[str, None] = {}
        self.best: Incumbent | None = None
        self._created: list[str] = []
        self._forks: dict[str, Origin] = {}
        self._counts: tuple[int, ...] = (-1,)
        self._jobs_left = 0

    # ------------------------------------------------------------------------------------------------------------- queries

    def virtual_runs(self) -> Iterator[tuple[TrialState, TrialRun]]:
        """Yield the trials that the tuner wants trained beyond the position that it knows, with their virtual runs."""
        for state in self.states.values():
            if state.virtual_run is not None and not state.virtual_run.parked:
                yield state, state.virtual_run

    @property
    def busy(self) -> int:
        """The number of trials that the tuner trains now: those with a virtual run."""
        return len(self._busy)

    @property
    def jobs_left(self) -> int:
        """The number of jobs that could be created at the start of the latest `turn`, minus those that the tuner created in it."""
        return max(self._jobs_left - len(self._created), 0)

    def owns(self, ticket: str) -> bool:
        """Return whether the tuner made the request with this ticket."""
        return ticket in self._tickets

    def mark_changed(self) -> None:
        """Mark the progress of all trials as possibly changed, so that the next turn checks each of them."""
        self._looked = None
        self.changes += 1

    def hear(self, call: Call | Verdict) -> None:
        """Queue an up-call, or the refusal of a command, for the tuner's next turn."""
        if isinstance(call, JobCreated):
            parent, position = self._forks.pop(call.job, ("", 0))
            self.states[call.job] = TrialState(call.job, position, parent=parent, fork_position=position)
        if isinstance(call, Verdict) and isinstance(call.command, ForkJob):
            parent, _ = self._forks.pop(call.command.job)
            call = replace(call, command=replace(call.command, parent=parent))
        if isinstance(call, Verdict) and isinstance(call.command, CreateJob | ForkJob):
            del self.made[call.command.job]  # The id may be used again.
        if isinstance(call, ExperimentChange):
            self._counts = (-1,)
        self._attention = True
        self.mark_changed()
        self._calls.append(call)

    def turn(self, cluster: Cluster, progress: Progress, settle: Callable[[], None] | None = None) -> None:
        """Make all pending up-calls on the tuner, including those for new reports, until it makes no further request.

        Args:
            cluster: The cluster in which the tuner's trials are jobs.
            progress: The known progress of trials.
            settle: Called before each up-call and at the end, to carry out the tuner's decisions before it makes
                further ones; None: nothing is called.

        Raises:
            RuntimeError: The tuner still makes further requests after `_RESTLESS` up-calls.
        """
        self._created.clear()
        self._jobs_left = cluster.experiment.jobs_left
        self._reconcile(cluster)
        for _ in range(_RESTLESS):
            if settle is not None:
                settle()
            if not self._calls:
                self._calls.extend(self._news(cluster, progress))
            if self._calls:
                self._make(cluster, progress, self._calls.popleft())
            elif self._attention and cluster.experiment.running and self._width_now(cluster) > len(self._busy):
                self._attention = False
                self._make(cluster, progress, AllocateJobs())
            else:
                return
        raise RuntimeError(
            f"the tuner {type(self.tuner).__name__} wants something new {_RESTLESS} times in one up-call"
        )

    def rests(self, cluster: Cluster) -> bool:
        """Return whether the tuner trains nothing and will not train again unless its experiment is changed, for example extended.

        Call it after `turn`.
        """
        waits = self._busy or self._calls or self.jobs_left or self._created or self._forks
        if waits or cluster.count(JobState.CREATING, JobState.HELD):
            return False
        return not self.demand(cluster)

    def demand(self, cluster: Cluster) -> int | None:
        """Return how many trials the tuner could train at a time, including running ones; None: no limit. Call it after `turn`."""
        return self.tuner.demand(self._bench(cluster, None))

    def rungs(self, cluster: Cluster) -> tuple[Rung, ...] | None:
        """Return the tuner's rungs for display; None: the tuner does not compare trials at rungs."""
        return self.tuner.rungs(self._bench(cluster, None))

    # -------------------------------------------------------------------------------------------------------- up-calls

    def _bench(self, cluster: Cluster, progress: Progress | None) -> InnerCluster:
        coming = {**dict.fromkeys(self._created, ("", 0)), **self._forks}
        trials = Trials(cluster.jobs, self.states, coming, cluster.experiment, self._hidden, _running(cluster))

        def curve(job: str) -> list[CurvePoint]:
            position = self.states[job].position if job in self.states else 0
            known = progress.curve(job) if progress is not None and position else ()
            return [point for point in known if point.position <= position]

        def saved(job: str, position: int) -> str | None:
            return progress.saved(job, position) if progress is not None else None

        def snapshots(job: str) -> list[int]:
            state = self.states.get(job)
            if state is None or not state.position:
                return []
            if not self.copies:  # It cannot fork, only resume.
                return [state.position]
            own = [position for position in sorted(state.stops) if saved(job, position)]
            return own or [position for position in (state.fork_position,) if position and saved(job, position)]

        return InnerCluster(
            Scene(
                cluster,
                trials,
                self._busy,
                frozenset(self._reserved),
                self._width_now(cluster),
                self.jobs_left,
                curve,
                snapshots,
                saved,
                self.copies,
            )
        )

    def _width_now(self, cluster: Cluster) -> int:
        most = min(len(cluster.jobs) + self._jobs_left, MOST)
        if self.width is not None:
            most = min(most, self.width)
        elif self._jobs_left > MOST:
            # Without a limit of jobs the generator may be exhausted soon, so only a few configurations are requested in
            # advance.
            most = min(most, len(self.states) + _AHEAD)
        return max(most, len(self._busy), 1)

    def _make(self, cluster: Cluster, progress: Progress, call: Call | Verdict) -> None:
        self.mark_changed()
        if isinstance(call, IterationFinish) and self.states[call.job].virtual_run is None:
            return
        bench = self._bench(cluster, progress)
        decision = None
        if isinstance(call, Verdict):
            self.tuner.on_refused(bench, call)
        else:
            decision = make_up_call(self.tuner, bench, call)
        self._created += bench.created
        self.made.update(dict.fromkeys([*bench.created, *bench.forked]))
        self._forks.update(bench.forked)
        self._tickets.update(bench.tickets)
        for command in bench.commands:
            self._carry_out(cluster, command)
        if isinstance(call, IterationFinish) and decision is not None:
            self._decide(cluster, call, decision)

    def _carry_out(self, cluster: Cluster, command: Command) -> None:
        match command:
            case StartJob():
                self._start(cluster, command)
            case AmendRun():
                self._amend(command)
            case SuspendJob(job):
                self._end(cluster, self.states[job], RunEndReason.SUSPENDED)
            case TerminateJob(job):
                self._terminate(cluster, self.states[job])
            case AnswerJob():
                state = self.states[command.job]
                state.position, state.ended = command.position, JobState.COMPLETED
            case ReserveSlot(slot):
                self._reserved.add(slot)
            case ReleaseSlot(slot):
                self._reserved.discard(slot)
                self._attention = True

    def _start(self, cluster: Cluster, command: StartJob) -> None:
        state = self.states[command.job]
        until = cluster.jobs[command.job].max_position if command.until is None else command.until
        (slot,) = command.slots
        state.attempt += 1
        state.virtual_run = TrialRun(slot, until, max(command.allowed or 0, state.position))
        self._reserved.discard(slot)
        self._busy[slot] = state.id

    def _amend(self, command: AmendRun) -> None:
        state = self.states[command.job]
        virtual_run = state.virtual_run
        until = command.until
        fits = virtual_run is not None and (
            until is None or until > state.position or (until == state.position and virtual_run.parked)
        )
        if virtual_run is not None and fits:
            virtual_run.until = virtual_run.until if until is None else until
            if (
                virtual_run.parked
                and virtual_run.held
                and virtual_run.until > state.position
                and not virtual_run.finished
            ):
                virtual_run.parked = virtual_run.held = False
        self._calls.append(AnswerReady(command.ticket, {"accepted": fits, "position": state.position}))

    def _terminate(self, cluster: Cluster, state: TrialState) -> None:
        if state.virtual_run is not None:
            self._end(cluster, state, RunEndReason.TERMINATED)
        state.ended = state.ended or JobState.TERMINATED

    def _decide(self, cluster: Cluster, call: IterationFinish, decision: Decision) -> None:
        state = self.states[call.job]
        virtual_run = state.virtual_run
        if virtual_run is None:
            return
        match decision.kind:
            case DecisionKind.SUSPEND:
                self._end(cluster, state, RunEndReason.SUSPENDED)
            case DecisionKind.TERMINATE:
                self._terminate(cluster, state)
            case DecisionKind.PARK:
                virtual_run.held = True
            case DecisionKind.CONTINUE:
                virtual_run.allowed = max(virtual_run.allowed, decision.up_to or 0)
                if virtual_run.parked and (virtual_run.until <= state.position or virtual_run.finished):
                    self._end(cluster, state, RunEndReason.UNTIL)
                elif virtual_run.parked:
                    virtual_run.parked = virtual_run.held = False

    def _end(self, cluster: Cluster, state: TrialState, reason: RunEndReason) -> None:
        """End the virtual run of a trial, if it has one, and queue a `RunEnd` for the tuner.

        For the tuner the trial has then ended, if it was terminated or is fully trained; otherwise it waits.

        Args:
            cluster: The cluster in which the tuner's trials are jobs.
            state: The tuner's knowledge of the trial.
            reason: Why the virtual run ends; TERMINATED ends the trial.
        """
        virtual_run = state.virtual_run
        if virtual_run is None:
            return
        self.mark_changed()
        state.virtual_run = None
        state.stops.add(state.position)
        del self._busy[virtual_run.slot]
        if reason is RunEndReason.TERMINATED:
            state.ended = JobState.TERMINATED
        elif virtual_run.finished or state.position >= cluster.jobs[state.id].max_position:
            state.ended, state.limit = JobState.COMPLETED, cluster.jobs[state.id].max_position
        self._attention = True
        self._calls.append(RunEnd(state.id, state.attempt, reason, state.position, state.position))

    # -------------------------------------------------------------------------------------------------------------- news

    def _reconcile(self, cluster: Cluster) -> None:
        """Update the trials whose jobs changed state without a decision of the tuner, and queue up-calls that inform the tuner.

        If a job failed, was terminated or became HELD, or its experiment was paused, the virtual run of its trial ends, and the tuner
        receives a `RunEnd`. A trial whose job has ended gets the final state of the job. A completed trial waits for training again
        if its experiment was extended.
        """
        counts = tuple(cluster.count(state) for state in _TELLING)
        if counts == self._counts:
            return
        self.mark_changed()
        if counts[-1] < self._counts[-1]:  # Some HELD jobs were resumed.
            self._attention = True
        extended, self._counts = self._counts == (-1,), counts
        jobs, running = cluster.jobs, _running(cluster)
        for name, state in self.states.items():
            if state.over and not extended:
                continue
            job = jobs[name]
            state.over = state.ended is not None and job.state.ended
            if state.ended is JobState.COMPLETED and not job.state.ended and state.limit < job.max_position:
                state.ended = None  # The experiment was extended.
                self._attention = True
            elif state.ended is not None:
                continue
            elif job.state in (JobState.FAILED, JobState.TERMINATED):
                failed = job.state is JobState.FAILED
                if failed and state.parent and state.virtual_run is None:  # The parent's snapshot is lost.
                    self._calls.append(RunEnd(name, state.attempt, RunEndReason.LOST, state.position, 0))
                self._end(cluster, state, RunEndReason.FAILED if failed else RunEndReason.TERMINATED)
                state.ended = job.state
            elif job.state is JobState.HELD or (running and job.experiment not in running):
                self._end(cluster, state, RunEndReason.SUSPENDED)
            elif job.state is JobState.COMPLETED and state.virtual_run is None:
                state.ended, state.limit = job.state, job.max_position

    def _news(self, cluster: Cluster, progress: Progress) -> list[Call]:
        """Return the up-calls for the next report of each trial that has a new report.

        The best reports come first, so that a tuner that promotes while results arrive decides as if it had known all
        results.

        Args:
            cluster: The cluster in which the tuner's trials are jobs.
            progress: The known progress of trials.
        """
        found: list[tuple[float, list[Call]]] = []
        before, self._looked = self._looked, progress.moves
        for state, virtual_run in list(self.virtual_runs()):
            if before is not None and not progress.moved(state.id, before):
                continue
            reached, finished = progress.reached(state.id)
            if not self._hears_each and reached < virtual_run.next_decision(state.position) and not finished:
                self.changes += state.position < reached
                state.position = max(state.position, reached)
            elif reached > state.position or finished:
                self.changes += 1
                calls = self._next_report(cluster, state, virtual_run, reached, progress.curve(state.id), finished)
                found.append((max((value(call, cluster) for call in calls), default=-math.inf), calls))
        return [call for _, calls in sorted(found, key=lambda each: -each[0]) for call in calls]

    def _next_report(
        self,
        cluster: Cluster,
        state: TrialState,
        virtual_run: TrialRun,
        reached: int,
        curve: Sequence[CurvePoint],
        finished: bool,
    ) -> list[Call]:
        limit = cluster.jobs[state.id].max_position
        known = math.inf if reached >= limit else reached  # A program that cannot stop at its end may report beyond it.
        new = [point for point in curve if state.position < point.position <= known]
        # A program that cannot stop at `until` stops at its first report beyond it.
        new = new[: next((n for n, point in enumerate(new, 1) if point.position >= virtual_run.until), len(new))]
        if not self._hears_each:  # Reports before the next decision are skipped.
            due = virtual_run.next_decision(state.position)
            new = [point for point in new if point.position >= due] or new[-1:]
        last = finished and len(new) <= 1
        if not new and not last:
            return []
        point = new[0] if new else next((p for p in reversed(curve) if p.position <= known), None)
        if point is None:  # The training finished without a report.
            virtual_run.finished = True
            self._end(cluster, state, RunEndReason.UNTIL)
            return []
        state.position = max(state.position, point.position)
        self._judge(cluster, state.id, point)
        virtual_run.parked = last or state.position >= virtual_run.until
        virtual_run.finished = last and state.position < limit
        report = Report(
            state.position, point.metrics, point.seconds, at_until=virtual_run.parked, finished=virtual_run.finished
        )
        calls: list[Call] = []
        if hears_statistics(self.tuner):
            calls.append(ApplicationStat(state.id, report))
        if virtual_run.parked and state.position >= limit and not self.tuner.ends_jobs:
            self._end(cluster, state, RunEndReason.UNTIL)
        elif virtual_run.parked or self.tuner.every_iteration or state.position >= virtual_run.allowed:
            calls.append(IterationFinish(state.id, report))
        return calls

    def _judge(self, cluster: Cluster, trial: str, point: CurvePoint) -> None:
        terms = cluster.experiment
        found = point.metrics.get(terms.metric, math.nan)
        if math.isfinite(found) and (self.best is None or terms.better(found, self.best.value)):
            self.best = Incumbent(trial, point.position, found)


def _running(cluster: Cluster) -> set[str]:
    """Return the ids of the cluster's experiments that are running, without paused and ended ones."""
    return {name for name, terms in cluster.experiments.items() if terms.running}
