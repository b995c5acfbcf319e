"""The part of the virtual cluster that simulates runs, slots and the share."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hopyard.policy.base import Policy, hears_statistics
from hopyard.policy.testing.world import (
    Curve,
    RunLog,
    TrainingFailed,
    VirtualJob,
    VirtualRun,
    VirtualSlot,
    VirtualStep,
    VirtualWorld,
)
from hopyard.policy.views import CurvePoint, ExperimentView, Incumbent, JobView
from hopyard.policy.vocabulary import (
    AnswerReady,
    ApplicationStat,
    Call,
    Decision,
    DecisionKind,
    IterationFinish,
    JobState,
    Report,
    RunEnd,
    RunEndReason,
    RunMode,
    ShareChange,
    SlotsChange,
    StartJob,
)
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode

_SAVING = (RunEndReason.UNTIL, RunEndReason.SUSPENDED, RunEndReason.PREEMPTED)


class VirtualRuns:
    """The part of `VirtualCluster` that simulates time, runs, slots and the share.

    Events for the policy are appended to the queue `_calls` as up-calls.
    """

    policy: Policy

    def __init__(self, terms: ExperimentView, world: VirtualWorld, curve: Curve) -> None:
        self.now = 0.0
        self.over = ""
        self.runs: list[RunLog] = []
        self.virtual_jobs: dict[str, VirtualJob] = {}
        self.slots: dict[str, VirtualSlot] = {}
        self.share = 0
        self.terms = terms
        self._world, self._curve = world, curve
        self._heap: list[tuple[float, int, bool, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = self._queued = 0
        self._calls: deque[tuple[Call, VirtualRun | None]] = deque()
        self._incumbent: Incumbent | None = None
        self._paused = self._at_rest = False
        self._attention = True
        self._outdated = False
        self._cap: int | None = None
        self._demand: int | None = None
        self._gang = 1

    @property
    def jobs(self) -> Mapping[str, JobView]:
        """All jobs by id, in order of creation, as a policy would see them now."""
        return {name: job.shown(self.terms.max_position) for name, job in self.virtual_jobs.items()}

    def curve(self, job: str) -> Sequence[CurvePoint]:
        """Return the reports of the job with the id `job`, by ascending position."""
        return self.virtual_jobs[job].points

    def _push(self, time: float, scripted: bool, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (max(time, self.now), self._sequence, scripted, action, arguments))

    def _after(self, seconds: float, action: Callable[..., None], *arguments: object) -> None:
        self._push(self.now + seconds, False, action, arguments)

    def _wake(self) -> None:
        self._attention, self._at_rest = True, False

    def _idle(self, job: VirtualJob, position: int, *, displaced: bool = False) -> None:
        self._queued += 1
        job.queued = self._queued
        state = JobState.SUSPENDED if job.saves else JobState.PENDING
        job.change(position=position, state=state, displaced=displaced)
        self._wake()

    # ------------------------------------------------------------------------------------------------------------- runs

    def _start(self, job: VirtualJob, command: StartJob) -> None:
        attempt, start, high_water = job.view.attempt + 1, job.source(), job.view.high_water
        if command.from_snapshot is not None:
            start = command.from_snapshot[1]
            if command.from_snapshot[0] != job.id and command.mode is RunMode.TRAIN:
                job.inherit(self.virtual_jobs[command.from_snapshot[0]], start)
                high_water = max(high_water, start)
        until = job.end(self.terms.max_position) if command.until is None else command.until
        until = until if command.mode is RunMode.TRAIN else start
        allowed = max(command.allowed or 0, min(high_water, until), start)
        run = job.run = VirtualRun(command, attempt, self.now, start, until, allowed, start, start)
        run.saves = set(command.snapshot_at)
        position = start if run.trains else job.view.position
        state = JobState.STARTING
        job.change(state=state, attempt=attempt, position=position, high_water=high_water, displaced=False)
        for slot in command.slots:
            self.slots[slot].job, self.slots[slot].reserved = job.id, False
        self._after(self._world.delays.start, self._started, job, run)

    def _started(self, job: VirtualJob, run: VirtualRun) -> None:
        if job.run is not run:
            return
        run.started = True
        if job.view.state is JobState.STARTING:
            job.change(state=JobState.RUNNING)
        self._train(job, run)

    def _train(self, job: VirtualJob, run: VirtualRun) -> None:
        together = self._world.gathers and run.apart
        interval = len(run.command.slots) if together else self._world.interval
        position = min(run.position + interval, job.end(self.terms.max_position)) if run.trains else run.position
        run.training, run.held = True, False
        profiles = run.command.mode is RunMode.PROFILE
        try:
            step = self._curve(job.view.hyperparameters, position + profiles)
        except TrainingFailed as failure:
            self._after(0.0, self._ended, job, run, RunEndReason.FAILED, f"train at position {position}: {failure}")
            return
        if profiles:
            self._after(0.0, self._profiled, job, run, step.seconds)
            return
        self._after(step.seconds, self._report, job, run, position, step)

    def _profiled(self, job: VirtualJob, run: VirtualRun, seconds: float) -> None:
        if job.run is not run:
            return
        run.training, run.parked = False, True
        part = run.command.inputs.get(run.command.slots[0], "")
        metrics = {"seconds": seconds}
        if self._world.gathers and run.apart:
            metrics["partitions"] = float(len(run.command.slots))
        report = Report(run.position, metrics, 0.0, part, 1, at_until=True)
        self._calls.append((ApplicationStat(job.id, report, part, RunMode.PROFILE), None))
        self._end(job, run, RunEndReason.UNTIL)

    def _report(self, job: VirtualJob, run: VirtualRun, position: int, step: VirtualStep) -> None:
        if job.run is not run:
            return
        run.training, run.position = False, position
        run.finished = run.finished or step.finished
        at_until = position >= run.until or step.finished
        run.parked = at_until
        part = "" if run.trains else run.command.inputs.get(run.command.slots[0], "")
        new = position > job.view.high_water if run.trains else (position, part) not in job.parts
        report = Report(position, dict(step.metrics), step.seconds, part, step.examples, at_until, step.finished)
        if run.trains:
            job.change(position=position)
            if position in run.saves or (
                self._world.snapshot_every and position - run.saved >= self._world.snapshot_every
            ):
                self._save(job, run)
        if new:
            job.losses = 0
            job.change(high_water=max(job.view.high_water, position))
            job.add(position, step, part)
            self._judge(job, position)
            source = run.command.inputs.get(run.command.slots[0], "")
            if hears_statistics(self.policy):
                self._calls.append((ApplicationStat(job.id, report, source, run.command.mode), None))
        if run.ending is not None:
            self._leave(job, run, run.ending)
        elif not run.trains or (at_until and self._completes(run)):
            self._end(job, run, RunEndReason.UNTIL)
        else:
            if at_until or (new and (self.policy.every_iteration or position >= run.allowed)):
                self._calls.append((IterationFinish(job.id, report, repeated=not new), run))
            if not at_until and (position < run.allowed or not new):
                self._train(job, run)

    def _completes(self, run: VirtualRun) -> bool:
        """Return whether a run that reached its `until` completes its job without a decision of the policy.

        It does if the policy does not set `ends_jobs` and the run was started to the end of its job.
        """
        started = run.command.until
        return not self.policy.ends_jobs and (
            started is None or started >= self.virtual_jobs[run.command.job].end(self.terms.max_position)
        )

    def _judge(self, job: VirtualJob, position: int) -> None:
        value = next(p for p in job.points if p.position == position).metrics.get(self.terms.metric)
        if value is None or not math.isfinite(value):
            return
        best = self._incumbent
        if best is None or self.terms.better(value, best.value):
            self._incumbent = Incumbent(job.id, position, value)
        if self.terms.target is not None and not self.terms.better(self.terms.target, value):
            self.over = f"job {job.id} reached the target"

    def _decide(self, job: VirtualJob, run: VirtualRun, call: IterationFinish, decision: Decision) -> None:
        if job.run is not run or run.ending is not None:
            return
        match decision.kind:
            case DecisionKind.PARK:
                run.held = True
            case DecisionKind.SUSPEND:
                self._end(job, run, RunEndReason.SUSPENDED)
            case DecisionKind.TERMINATE:
                self._end(job, run, RunEndReason.TERMINATED)
            case DecisionKind.CONTINUE:
                run.allowed = max(run.allowed, decision.up_to or 0)
                if run.finished or (call.at_until and run.until <= call.position):
                    self._end(job, run, RunEndReason.UNTIL)
                elif not run.training:
                    self._train(job, run)

    def _end(self, job: VirtualJob, run: VirtualRun, reason: RunEndReason, *, displaces: bool = False) -> None:
        """End the run of a job with a reason: after its start or present iteration, or at once if it waits for a decision.

        If the run is ending already, only TERMINATED replaces the earlier reason. With `displaces` this is no decision of the policy.
        """
        if run.ending is None or reason is RunEndReason.TERMINATED:
            run.ending, run.displaced = reason, displaces
            job.change(state=JobState.SUSPENDING)
        if run.started and not run.training:
            self._leave(job, run, run.ending)

    def _leave(self, job: VirtualJob, run: VirtualRun, reason: RunEndReason) -> None:
        if not run.leaving:
            run.leaving = True
            seconds = 0.0 if reason is RunEndReason.TERMINATED else self._world.delays.save
            self._after(seconds, self._ended, job, run, reason)

    def _ended(self, job: VirtualJob, run: VirtualRun, reason: RunEndReason, message: str = "") -> None:
        if job.run is not run:
            return
        if run.ending is RunEndReason.TERMINATED:
            reason = RunEndReason.TERMINATED
        if reason in _SAVING and run.trains and run.saved != run.position:
            self._save(job, run)
        job.run = None
        for slot in run.command.slots:
            if slot in self.slots:
                self.slots[slot].job, self.slots[slot].reserved = "", False
        for ticket in sorted(run.amends):
            self._calls.append((AnswerReady(ticket, {"accepted": False, "position": run.position}), None))
        run.amends.clear()
        self._outcome(job, run, reason)
        self._wake()
        slots, began = run.command.slots, run.began
        log = RunLog(
            job.id, run.attempt, slots, began, run.start, self.now, run.position, reason, run.until, run.command.mode
        )
        self.runs.append(log)
        cause = Reason.of(ReasonCode.RUN_MESSAGE, message=message) if message else None
        end = RunEnd(job.id, run.attempt, reason, run.position, job.view.position, cause, run.command.mode)
        self._calls.append((end, None))
        self._shed()

    def _outcome(self, job: VirtualJob, run: VirtualRun, reason: RunEndReason) -> None:
        counts = run.command.mode is not RunMode.PROFILE
        job.failures += counts and reason is RunEndReason.FAILED
        job.losses += counts and reason is RunEndReason.LOST
        end = job.end(self.terms.max_position)
        complete = run.trains and reason in _SAVING and (run.finished or run.position >= end)
        # A run can be lost after its last position was saved. Nothing is left to train then.
        complete = complete or (run.trains and job.source() >= end)
        if reason is RunEndReason.TERMINATED:
            job.change(state=JobState.TERMINATED)
        elif complete and not self.policy.evaluates:
            job.change(state=JobState.COMPLETED)
        elif job.failures > self._world.max_failures or job.losses > self._world.max_losses:
            job.change(state=JobState.FAILED)
        else:
            removed = reason in (RunEndReason.SUSPENDED, RunEndReason.PREEMPTED, RunEndReason.LOST)
            self._idle(job, job.source(), displaced=run.displaced and removed)

    def _save(self, job: VirtualJob, run: VirtualRun) -> None:
        run.saved = run.position
        job.saves[run.position] = (self.now + self._world.delays.store, run.command.slots[0])
        if self.policy.forks and run.position in run.saves:
            self._wake()
            self._outdated = True
        if self._world.keep_latest:
            job.saves = {p: job.saves[p] for p in sorted(job.saves)[-self._world.keep_latest :]}

    # ------------------------------------------------------------------------------------------------------------ share

    def _rebalance(self) -> None:
        """Recompute the share of the experiment; if it changed, inform the policy and grant or withdraw slots.

        There is no other experiment, so the share is what the policy can use of the slots up to the limit of `set_share`, in
        complete gangs; 0 during a pause.
        """
        demand = 0 if self._paused else self._demand
        share = min(n for n in (len(self.slots), self._cap, demand) if n is not None)
        share -= share % self._gang
        if self.share != share:
            self._set_share(share)
        self._grant()

    def _set_share(self, slots: int) -> None:
        grown, self.share = slots > self.share, slots
        self._shed()
        over = sum(m.granted for m in self.slots.values()) > slots
        self._calls.append((ShareChange(slots, self.now + self._world.grace if over else None), None))
        if over:
            self._after(self._world.grace, self._preempt)
        if grown:
            self._wake()
        self._grant()

    def _grant(self) -> None:
        for name, slot in sorted(self.slots.items()):
            if not slot.granted and sum(m.granted for m in self.slots.values()) < self.share:
                slot.granted = True
                self._calls.append((SlotsChange(joined=(name,)), None))
                self._wake()

    def _shed(self) -> None:
        held = [m for m in self.slots.values() if m.granted]
        idle = sorted((m for m in held if not m.job), key=lambda m: (m.reserved, m.id))
        for slot in idle[: max(len(held) - self.share, 0)]:
            slot.granted = slot.reserved = False

    def _preempt(self) -> None:
        runs: Mapping[str, VirtualRun] = {j.id: j.run for j in self.virtual_jobs.values() if j.run is not None}
        leaving = sum(len(run.command.slots) for run in runs.values() if run.ending is not None)
        surplus = sum(m.granted for m in self.slots.values()) - self.share - leaving
        victims = [self.virtual_jobs[j] for j, run in runs.items() if run.ending is None and run.command.preemptible]
        for job in sorted(victims, key=lambda j: (j.view.priority or 0.0, -j.view.ordinal)):
            if surplus > 0 and job.run is not None:
                surplus -= len(job.run.command.slots)
                self._end(job, job.run, RunEndReason.PREEMPTED, displaces=True)
