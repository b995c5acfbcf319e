"""The state of one stream of the journal, and basic operations on it that all handlers use.

A stream is one experiment, or a group of experiments with the same `share` key. The experiments of a group have separate settings,
budgets and generators. They share one policy, their slots, jobs and snapshots.

`handlers.dispatch.handle` applies one event. Handlers append their effects to `Stream.effects`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import takewhile

from hopyard.policy.vocabulary import (
    AllocateJobs,
    Call,
    ExperimentId,
    ExperimentState,
    JobState,
    Metrics,
    PredictionReady,
    RunKey,
)
from hopyard.policy.vocabulary.reasons import Reason
from hopyard_engine.core.effects import (
    AskOutside,
    CommandBody,
    Effect,
    ForgetSnapshot,
    JobChanged,
    OrdersGiven,
    Send,
    SetTimer,
    SlotReturned,
    UpCall,
    WithdrawQuestion,
)
from hopyard_engine.core.events import ExperimentJoined, StreamCreated
from hopyard_engine.core.state.change_log import Recent
from hopyard_engine.core.state.curve import CurveEntry
from hopyard_engine.core.state.entities import GrantedSlot, Job, Run, earlier_of
from hopyard_engine.core.state.experiment import Experiment, GeneratorCall, foremost
from hopyard_engine.core.state.hop_counts import HopCounts
from hopyard_engine.core.state.job_queue import IdleQueue
from hopyard_engine.core.state.partitions import PlacedPartitions
from hopyard_engine.core.state.policy_conversation import ConversationState, PolicyConversation
from hopyard_engine.core.state.snapshot_entries import Dropped, Keep, SnapshotEntry, SnapshotId
from hopyard_engine.core.state.snapshots import SnapshotBook
from hopyard_engine.core.state.timers import POLICY, BackoffTimer, TimerKey
from hopyard_engine.core.state_machines.job_states import change_job
from hopyard_engine.core.types import Settings

_MASK = (1 << 63) - 1
_GOLDEN = 0x9E3779B97F4A7C15


class Stream:
    """The state of one stream. Its id is the id of its first experiment, the `founder`."""

    def __init__(self, created: StreamCreated) -> None:
        self.id = created.stream
        self.founder = Experiment(ExperimentId(created.stream), created.settings, created.payload, created.at)
        self.experiments: dict[ExperimentId, Experiment] = {self.founder.id: self.founder}
        self.now = created.at
        self.data = PlacedPartitions(created.data) if created.data is not None else None

        self.earlier = earlier_of(created.earlier, self.founder.id)
        self.scaling = created.scaling
        self.jobs: dict[str, Job] = {}
        self.touched = Recent()  # Changed jobs. Live jobs change without an entry here.
        self.states: dict[JobState, int] = {}
        self.idle = IdleQueue()
        self.open: dict[str, Job] = {}
        self.live: dict[str, Run] = {}
        self.slots: dict[str, GrantedSlot] = {}
        self.vacant: set[str] = set()
        self.draining: set[str] = set()
        self.busy = 0
        self.snapshots = SnapshotBook(
            info.sha256 for trial in self.earlier.values() for info in trial.snapshots.values()
        )
        self.hops = HopCounts()
        self.tidied = False  # The snapshots or the need for them changed: the quota must be checked.
        self.crowded = 0  # Bytes above the quota that cannot be dropped.
        self.crowded_told = 0  # The highest value of `crowded` in a notice.
        self.gave_up = False  # Snapshots were deleted for the store quota.
        self.share = 0
        self.demand: int | None = None
        self.claimed: int | None = None
        self.gang = self.claimed_gang = 1
        self.nodes: tuple[str, ...] = ()  # Nodes with usable slots; empty: all.
        self.claimed_nodes: tuple[str, ...] = ()
        self.overdue = False
        self.ordinals = 0

        self.conversation = PolicyConversation(self.id)
        self.asks: dict[str, AskOutside] = {}
        self.timers: dict[str, float] = {}  # Times by ticket (`TimerKey`).
        self.requests: set[str] = set()
        self.quarantined = False
        self.terms_told: tuple[float, int | None] = self.terms
        self.effects: list[Effect] = []

    # ------------------------------------------------------------------------------------------------------- questions

    @property
    def settings(self) -> Settings:
        """The settings of the first experiment.

        Use it for those that all experiments have in common: metric and mode, the policy's seed, grace periods.
        """
        return self.founder.settings

    @property
    def state(self) -> ExperimentState:
        """The combined state of the experiments: RUNNING while one is running, ended when all have ended."""
        return self.founder.state if len(self.experiments) == 1 else foremost(list(self.experiments.values())).state

    @property
    def reason(self) -> Reason | None:
        """The reason of the combined state."""
        return foremost(list(self.experiments.values())).reason

    @property
    def running(self) -> list[Experiment]:
        """The experiments whose jobs may be created and started."""
        return [m for m in self.experiments.values() if m.running]

    @property
    def terms(self) -> tuple[float, int | None]:
        """The total (weight, slot limit) of the running experiments, or of those that have not ended if none is running.

        A limit of None means no limit.
        """
        if len(self.experiments) == 1 and self.founder.settings.concurrency is None:
            return self.founder.settings.weight, self.founder.settings.slots
        experiments = self.running or [m for m in self.experiments.values() if not m.state.ended] or [self.founder]
        caps = [cap for cap in (_sum([m.settings.slots for m in experiments]), self._cap_by_jobs) if cap is not None]
        return sum(m.settings.weight for m in experiments), min(caps, default=None)

    @property
    def concurrency(self) -> int | None:
        """The number of jobs of all experiments that may train at the same time; None: no limit."""
        return _sum([m.settings.concurrency for m in self.running or self.experiments.values()])

    @property
    def _cap_by_jobs(self) -> int | None:
        """The number of slots that `concurrency` jobs can use: the slots of the runs that would stay, and a gang for each other job.

        None if there is no limit. Also None if the policy scales jobs and runs no more than `concurrency`: its demand accounts for
        the limit.
        """
        limit = self.concurrency
        if limit is None or (self.settings.scales and len(self.live) <= limit):
            return None
        runs = sorted(self.live.values(), key=self.precedence, reverse=True)[:limit]
        return sum(len(run.slots) for run in runs) + (limit - len(runs)) * self.gang

    @property
    def snapshot_quota(self) -> int | None:
        """The maximum size in bytes of the snapshots of all experiments; None: no limit."""
        return _sum([m.settings.snapshot_quota for m in self.experiments.values()])

    @property
    def generated(self) -> int:
        """The number of jobs created by generators or with given hyperparameters."""
        return sum(m.generated for m in self.experiments.values())

    @property
    def jobs_left(self) -> int:
        """The number of jobs that may be created now by generators or with given hyperparameters."""
        return sum([m.jobs_left for m in self.experiments.values() if m.running])

    @property
    def best(self) -> tuple[str, int, float] | None:
        """(job, position, value) of the best finite report; None: there is none."""
        found = [m.best for m in self.experiments.values() if m.best is not None]
        return max(found, key=lambda best: self.sign(best[2]), default=None)

    @property
    def claim(self) -> int | None:
        """The number of slots that the stream can use now, 0 unless it is RUNNING; None: as many as possible."""
        return self.demand if self.state is ExperimentState.RUNNING else 0

    @property
    def granted(self) -> int:
        """The number of slots that count against the share: all except those that must be returned because they drain."""
        return len(self.slots) - len(self.draining)

    @property
    def placed(self) -> int:
        """The number of slots with a run that count against the share."""
        return self.busy - sum(self.slots[slot].run is not None for slot in self.draining)

    def precedence(self, run: Run) -> tuple[bool, float, int, int]:
        """Returns the sort key for preemption; runs with the lowest key are preempted first.

        Lowest priority first, then the least training at risk, then the newest job; runs that are not preemptible come last. A
        program without a snapshot may be unable to save one, so all its training is at risk.
        """
        job = self.jobs[run.job]
        at_stake = run.position if self.snapshots.newest(run.job) is None else 0
        return not run.preemptible, job.priority or 0.0, at_stake, -job.ordinal

    def sign(self, value: float) -> float:
        """Returns a metric value with the sign changed in mode "min", so that higher is better."""
        return value if self.settings.mode == "max" else -value

    def idle_jobs(self) -> list[Job]:
        """Returns the queue of idle jobs: highest priority first, then by arrival."""
        return [self.jobs[job] for job in self.idle]

    def curve(self, job: Job) -> list[CurveEntry]:
        """Returns a job's curve entries, beginning with the prefix from its origin."""
        own = job.curve.upto(job.max_position)
        if job.origin is None:
            return own
        return [*job.prefix, *(p for p in own if p.position > job.origin[1])]

    def back(self, job: Job, position: int) -> Iterator[CurveEntry]:
        """Iterates over a job's curve entries from a position downwards, so that callers can stop early."""
        least = -1 if job.origin is None else job.origin[1]
        own = job.curve.back(min(position, job.max_position))
        yield from takewhile(lambda point: point.position > least, own)
        yield from (point for point in reversed(job.prefix) if point.position <= position)

    def set_origin(self, job: Job, source: tuple[str, int]) -> None:
        """Makes a job continue another job's curve as it is now. Later changes of the other job do not affect it."""
        job.prefix = tuple(p for p in self.curve(self.jobs[source[0]]) if p.position <= source[1])
        job.origin = source

    def source_of(self, job: Job) -> tuple[str, int] | None:
        """Returns the snapshot from which the job would resume: its newest one, else that of its origin, else None."""
        newest = self.snapshots.newest(job.id)
        if newest is not None:
            return (job.id, newest.info.position)
        if job.forked and job.origin is not None:
            entry = self.snapshots.get(*job.origin)
            if entry is not None and entry.available:
                return job.origin
        return None

    # ------------------------------------------------------------------------------------------------------ operations

    def add(self, event: ExperimentJoined) -> Experiment:
        """Adds an experiment to the stream, with the results of earlier experiments that it can reuse."""
        for name, trial in earlier_of(event.earlier, event.experiment).items():
            known = self.earlier.get(name)
            if known is None or known.high_water <= trial.high_water:
                self.earlier[name] = (
                    trial if known is None else replace(trial, snapshots={**known.snapshots, **trial.snapshots})
                )
                self.snapshots.lend(info.sha256 for info in trial.snapshots.values())
        experiment = self.experiments[event.experiment] = Experiment(
            event.experiment, event.settings, event.payload, event.at
        )
        return experiment

    def emit(self, effect: Effect) -> None:
        """Appends an effect."""
        self.effects.append(effect)

    def call(self, call: Call, run: Run | None = None) -> None:
        """Queues an up-call. If it needs a decision for `run`, it is dropped when the run has ended before its turn."""
        self.conversation.queue(call, run)

    def wake(self) -> None:
        """Makes an `AllocateJobs` up-call due, because something may be allocated that could not be before."""
        self.conversation.wake()

    def ask(
        self, ticket: str, kind: str, payload: object, experiment: ExperimentId = ExperimentId(""), seconds: float = 0.0
    ) -> None:
        """Asks a generator, a predictor or a solver, and records the question until it is answered."""
        question = AskOutside(self.id, ticket, kind, payload, experiment, seconds)
        self.asks[ticket] = question
        self.emit(question)

    def due(self, timer: TimerKey) -> float | None:
        """Returns the time at which a timer elapses, or None if it is not set."""
        return self.timers.get(timer.ticket)

    def set_timer(self, timer: TimerKey, at: float | None) -> None:
        """Sets or moves a timer; `at` None cancels it."""
        if at is None:
            if self.timers.pop(timer.ticket, None) is None:
                return
        else:
            self.timers[timer.ticket] = at
        self.emit(SetTimer(self.id, timer.ticket, at))

    def send(self, run: Run, rank: int, body: CommandBody) -> None:
        """Sends a command to a process of a run."""
        process = run.ranks[rank]
        key = RunKey(self.id, run.job, run.attempt, rank)
        self.emit(Send(process.node, key, process.channel.send(body), body))

    def move(self, job: Job, state: JobState, why: Reason) -> None:
        """Changes a job's state and performs the consequences: idle queue, pins, snapshots, generator, row."""
        if state.idle and job.held:
            state = JobState.HELD
        self.count(job, -1)
        change_job(job, state, why)
        self.count(job, 1)
        self.withdraw(job)
        if state.idle and self.due(BackoffTimer(job.id)) is None:
            self.offer(job)
        if not state.ended:
            self.open[job.id] = job
        else:
            self.open.pop(job.id, None)
            job.held = False
            self.unpin_fork(job)
            self.collect(job)
            self.upload_remaining(job)
            self.tell_generator(job)
            self.withdraw_predictions(job)
        self.changed(job)

    def order_uploads(self, snapshots: Iterable[SnapshotId]) -> None:
        """Orders the upload of deferred snapshots."""
        nodes = [self.snapshots.order_deferred(snapshot) for snapshot in snapshots]
        for node in dict.fromkeys(nodes):
            self.emit(OrdersGiven(node))

    def upload_remaining(self, job: Job) -> None:
        """Orders the upload of an ended job's retained snapshots, so that they survive the loss of a node."""
        self.order_uploads(self.snapshots.wanted(lambda name: name == job.id))

    def tell_generator(self, job: Job) -> None:
        """Records the end of a job for its experiment's generator, unless that reads no results.

        Calls on a generator are recorded per experiment and reach it in order, before the next question.
        """
        if job.experiment.settings.generator_reads == "nothing":
            return
        metrics, position = self._best_metrics(job)
        given = None if job.generated else job.hyperparameters
        job.experiment.generator_calls.append(
            GeneratorCall("final", job.id, given, metrics, position=position, outcome=job.state)
        )

    def _best_metrics(self, job: Job) -> tuple[Metrics, int]:
        if job.best is None:
            return {}, 0
        position = job.best[1]
        if position in job.curve.points:
            return job.curve.points[position].metrics, position
        # It was answered from another job's results, so the entry is in its prefix.
        return next(point.metrics for point in self.curve(job) if point.position == position), position

    def withdraw_predictions(self, job: Job) -> None:
        """Cancels the unanswered predictions for a job that ended, and tells the policy."""
        tickets, job.predictions = job.predictions, {}
        for ticket in tickets:
            if ticket in self.asks:
                del self.asks[ticket]
                self.emit(WithdrawQuestion(self.id, ticket))
                error = f"job {job.id} is {job.state.value} by now"
                self.call(PredictionReady(ticket.removeprefix(POLICY), job.id, error=error))

    def changed(self, job: Job) -> None:
        """Requests a new projection of the job's row."""
        self.touched.touch(job.id)
        self.emit(JobChanged(job.experiment.id, job.id))

    def count(self, job: Job, change: int) -> None:
        """Adds `change` to the number of jobs in the job's state."""
        for states in (self.states, job.experiment.states):
            states[job.state] = states.get(job.state, 0) + change

    def offer(self, job: Job) -> None:
        """Adds an idle job to the queue, or to the paused jobs of its experiment if that is not running."""
        self.touched.touch(job.id)
        if job.experiment.running:
            self.idle.add(job.id, job.priority)
            self.wake()
        else:
            job.experiment.paused_jobs[job.id] = None

    def withdraw(self, job: Job) -> None:
        """Removes a job from the queue and from the paused jobs."""
        self.touched.touch(job.id)
        self.idle.discard(job.id)
        job.experiment.paused_jobs.pop(job.id, None)

    def unpin_fork(self, job: Job) -> None:
        """Unpins the snapshot that the job was forked from."""
        if job.fork_pin is not None:
            pin, job.fork_pin = job.fork_pin, None
            self.snapshots.unpin(pin, job.fork_holder)
            self.collect(self.jobs[pin[0]])

    def asked(self, job: Job) -> set[int]:
        """Returns the positions of a job that the policy may still fork from.

        The policy requested snapshots there and has released neither them nor the job. With `Settings.forks_newest` it is only the
        newest one.
        """
        over = (self.state is ExperimentState.ENDING or self.state.ended) and not job.experiment.out_of_time
        if over or (job.state is JobState.TERMINATED and not self.lends(job)):
            return set()
        asked = job.asked if job.kept is None else job.kept
        if self.settings.forks_newest:
            return set([position for position in self.snapshots.positions(job.id) if position in asked][-1:])
        return asked

    def lends(self, job: Job) -> bool:
        """Returns whether other experiments of the group may still use the snapshots of a job whose experiment has ended."""
        return job.lends and bool(self.alike(job.experiment))

    def alike(self, experiment: Experiment) -> list[Experiment]:
        """Returns the other experiments of the group with the same search plan that are not ending or ended."""
        plan = experiment.settings.plan
        others = (m for m in self.experiments.values() if m is not experiment and m.settings.plan == plan)
        return [m for m in others if plan and not (m.state.ended or m.state is ExperimentState.ENDING)]

    def _spared(self, job: Job) -> set[int]:
        """Returns the positions of snapshots that a job keeps in addition to those that its settings retain.

        These are the requested positions and, for a completed job with `Settings.lasting`, those at which other jobs branched off.
        """
        lasting = job.asked if job.terms.lasting and job.state is JobState.COMPLETED else set()
        return self.asked(job) | lasting

    def collect(self, job: Job) -> None:
        """Drops the snapshots of a job that nobody needs."""
        wanted = not job.state.ended or job.state is JobState.COMPLETED or (job.experiment.best or ("",))[0] == job.id
        wanted = wanted or (self.lends(job) and job.kept is None)
        self.tidied = True
        if self.snapshots.least(job.id) and wanted:
            return
        before = self.snapshots.count(job.id)
        self.drop(self.snapshots.collect(job.id, wanted, self._value_at(job), _keep(job), self._spared(job)))
        if self.snapshots.count(job.id) != before:
            self.changed(job)  # Its row lists its snapshots, even after the end.

    def for_others(self, job: Job) -> list[SnapshotEntry]:
        """Returns the snapshots of a completed job that are kept only so that other jobs can start from them."""
        if job.state is not JobState.COMPLETED or not job.asked:
            return []
        own = self.snapshots.retained(job.id, self._value_at(job), _keep(job))
        return [e for e in self.snapshots.of(job.id) if e.info.position in job.asked - own]

    def _value_at(self, job: Job) -> Callable[[int], float | None]:
        """Returns a function that gives the job's metric at a position, higher is better, or None if there is none."""

        def value(position: int) -> float | None:
            point = job.curve.points.get(position)
            measured = point.metrics.get(self.settings.metric) if point is not None else None
            return None if measured is None else self.sign(measured)

        return value

    def drop(self, dropped: list[Dropped]) -> None:
        """Emits the effects that delete contents which nobody refers to."""
        self.tidied = True
        for item in dropped:
            self.emit(ForgetSnapshot(self.id, item.sha256, item.nodes, True))

    def free(self, slot: str) -> None:
        """Makes a slot vacant, because its run has left."""
        held = self.slots.get(slot)
        if held is not None and held.run is not None:
            held.run = None
            self.busy -= 1
            self.vacant.add(slot)
            self.wake()

    def occupy(self, slot: GrantedSlot, run: Run) -> None:
        """Assigns a slot to a run and ends its reservation."""
        slot.run, slot.reserved, slot.reservation = run, False, ""
        self.busy += 1
        self.vacant.discard(slot.id)

    def reserve(self, slot: GrantedSlot, request: str = "") -> None:
        """Reserves an idle slot for the policy, or for the request of a client."""
        slot.reserved, slot.reservation = True, request
        self.vacant.discard(slot.id)

    def release(self, slot: GrantedSlot) -> None:
        """Ends the reservation of an idle slot."""
        slot.reserved, slot.reservation = False, ""
        self.vacant.add(slot.id)

    def reservation(self, request: str) -> GrantedSlot | None:
        """Returns the slot that is reserved for a client's request, or None."""
        if not request:
            return None
        return next((m for m in self.slots.values() if m.reservation == request), None)

    def give_up(self, slot: str) -> None:
        """Removes a slot from the stream."""
        self.busy -= self.slots.pop(slot).run is not None
        self.vacant.discard(slot)
        self.draining.discard(slot)

    def shed(self) -> None:
        """Returns idle slots to the cluster: those that drain, those on nodes that the policy cannot use, and those above the share."""
        if len(self.slots) == self.busy:
            return
        useless = {m.id for m in self.slots.values() if self.nodes and m.node not in self.nodes and not m.reserved}
        leaving = useless | self.draining
        if self.granted <= self.share and not leaving:
            return
        for slot in sorted(self.slots.values(), key=lambda m: (m.id not in leaving, m.reserved, m.id)):
            if slot.id not in leaving and self.granted <= self.share:
                return
            if slot.idle:
                self.give_up(slot.id)
                self.emit(SlotReturned(self.id, slot.id))

    # -------------------------------------------------------------------------------------------------------- up-calls

    def next_call(self, at: float) -> None:
        """Makes the next up-call, unless one is in flight: first the queued ones, then `AllocateJobs` if it is due and useful."""
        conversation = self.conversation
        if conversation.state is not ConversationState.IDLE or self.state.ended:
            return
        if (queued := conversation.take_next(self._waits_for_decision)) is not None:
            self._make(*queued, at)
            return
        if not conversation.allocation_due or self.state is not ExperimentState.RUNNING:
            return
        placeable = bool(self.vacant) and self.placed < self.share
        untold = bool(conversation.verdicts) and not self.live  # Without a run no other up-call delivers the refusals.
        if placeable or untold or conversation.demand_outdated:
            self._make(AllocateJobs(), None, at)

    def _waits_for_decision(self, run: Run | None) -> bool:
        return run is not None and self.live.get(run.job) is run and not run.ended

    def _make(self, call: Call, run: Run | None, at: float) -> None:
        number, verdicts = self.conversation.ask(call, run, at)
        seed = (self.settings.seed * _GOLDEN + number * 0xBF58476D1CE4E5B9) & _MASK
        self.emit(UpCall(self.id, number, at, seed, call, verdicts))


def _keep(job: Job) -> Keep:
    return Keep(job.terms.keep_latest, job.terms.keep_best)


def _sum(limits: Iterable[int | None]) -> int | None:
    """Returns the sum of limits, or None (no limit) if any of them is None."""
    given = list(limits)
    return None if None in given else sum(limit for limit in given if limit is not None)
