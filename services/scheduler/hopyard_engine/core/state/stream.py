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
    ENDLESS,
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
from hopyard_engine.core.state.change_log import ChangeLog
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
    """Represents the state of one stream. Its id is the id of its first experiment, the `founder`.

    Args:
        created: The first event of the stream.

    Attributes:
        id: Id of the stream.
        founder: The first experiment.
        experiments: All experiments by id, the founder first.
        now: Time of the newest event in seconds since the Unix epoch.
        data: The partitioned data to train on; None: the data is not partitioned.
        earlier: Results of earlier experiments that jobs may reuse, by the name of the trial.
        scaling: Times that earlier experiments measured for the same training on several slots.
        jobs: All jobs by id.
        touched: Log of changed jobs. Changes during a run are not recorded in it.
        states: Number of jobs in each state.
        idle: Queue of the idle jobs that may be started.
        open: Jobs that have not ended, by id.
        live: Runs with a process on a slot, by job id.
        slots: Slots that the cluster has granted, by id.
        vacant: Ids of the slots that are neither occupied nor reserved.
        draining: Ids of the slots that must be returned when their run has left.
        busy: Number of occupied slots.
        snapshots: The snapshots of all jobs.
        hops: Counters of snapshot transfers.
        snapshots_changed: Whether snapshots, or the need for them, changed in this event. Then the quota must be checked.
        quota_excess: Bytes above the snapshot quota that cannot be deleted.
        quota_excess_noticed: Highest value of `quota_excess` in a notice.
        gave_up: Whether snapshots were deleted because of the store quota.
        share: Number of slots that the stream may use.
        share_at: Time since which the share is 0, or above 0, in seconds since the Unix epoch.
        demand: Number of slots that the policy can use; None: as many as possible.
        claimed: Value of the property `claim` that was last sent to the cluster state.
        gang: Number of slots (>= 1) that the policy takes at once; its demand is a multiple of this number.
        claimed_gang: Value of `gang` that was last sent to the cluster state.
        nodes: Names of the nodes with usable slots; empty: all nodes.
        claimed_nodes: Value of `nodes` that was last sent to the cluster state.
        overdue: Whether the deadline for returning slots above the share has passed.
        ordinals: Number of jobs created so far.
        conversation: The conversation with the policy.
        asks: Unanswered questions to generators, predictors and solvers, by ticket.
        timers: Time at which each set timer elapses, in seconds since the Unix epoch, by ticket (see the module `timers`).
        requests: Idempotency keys of the applied `Updated`, `JobsRetried` and `Imported` events, without refused ones.
        quarantined: Whether the stream was stopped after an error in the engine.
        terms_sent: Value of the property `terms` that was last sent to the cluster state.
        effects: Effects of the current event.
    """

    def __init__(self, created: StreamCreated) -> None:
        self.id = created.stream
        self.founder = Experiment(ExperimentId(created.stream), created.settings, created.payload, created.at)
        self.experiments: dict[ExperimentId, Experiment] = {self.founder.id: self.founder}
        self.now = created.at
        self.data = PlacedPartitions(created.data) if created.data is not None else None

        self.earlier = earlier_of(created.earlier, self.founder.id)
        self.scaling = created.scaling
        self.jobs: dict[str, Job] = {}
        self.touched = ChangeLog()
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
        self.snapshots_changed = False
        self.quota_excess = 0
        self.quota_excess_noticed = 0
        self.gave_up = False
        self.share = 0
        self.share_at = created.at
        self.demand: int | None = None
        self.claimed: int | None = None
        self.gang = self.claimed_gang = 1
        self.nodes: tuple[str, ...] = ()
        self.claimed_nodes: tuple[str, ...] = ()
        self.overdue = False
        self.ordinals = 0

        self.conversation = PolicyConversation(self.id)
        self.asks: dict[str, AskOutside] = {}
        self.timers: dict[str, float] = {}
        self.requests: set[str] = set()
        self.quarantined = False
        self.terms_sent: tuple[float, int | None] = self.terms
        self.effects: list[Effect] = []

    # ------------------------------------------------------------------------------------------------------- questions

    @property
    def settings(self) -> Settings:
        """The settings of the first experiment.

        Use it only for settings that are equal in all experiments of a group: metric and mode, the policy's seed, grace periods.
        """
        return self.founder.settings

    @property
    def state(self) -> ExperimentState:
        """The combined state of the experiments (`foremost`): RUNNING while one of them is, a final state when all have ended."""
        return self.founder.state if len(self.experiments) == 1 else foremost(list(self.experiments.values())).state

    @property
    def reason(self) -> Reason | None:
        """The reason of the combined state (`state`); None: the state needs no explanation."""
        return foremost(list(self.experiments.values())).reason

    @property
    def running(self) -> list[Experiment]:
        """The RUNNING experiments, whose jobs may be created and started."""
        return [m for m in self.experiments.values() if m.running]

    @property
    def terms(self) -> tuple[float, int | None]:
        """(weight, maximum number of slots) of the stream, by which the cluster state divides slots between streams.

        Both are sums over the RUNNING experiments, or over those that have not ended if none is RUNNING. A maximum of None means no
        limit.
        """
        if len(self.experiments) == 1 and self.founder.settings.concurrency is None:
            return self.founder.settings.weight, self.founder.settings.slots
        experiments = self.running or [m for m in self.experiments.values() if not m.state.ended] or [self.founder]
        caps = [cap for cap in (_sum([m.settings.slots for m in experiments]), self._cap_by_jobs) if cap is not None]
        return sum(m.settings.weight for m in experiments), min(caps, default=None)

    @property
    def concurrency(self) -> int | None:
        """The maximum number of jobs of the stream that train at the same time; None: no limit.

        It is the sum of the limits of the RUNNING experiments, or of all experiments if none is RUNNING. It is None if any of these has
        no limit.
        """
        return _sum([m.settings.concurrency for m in self.running or self.experiments.values()])

    @property
    def _cap_by_jobs(self) -> int | None:
        """The number of slots that `concurrency` jobs can use; None: no limit.

        It is the number of slots of the `concurrency` runs that would be preempted last (`precedence`), plus one gang for each further
        job. It is also None if the policy chooses the number of slots of each job and no more than `concurrency` runs are live: then
        the policy's demand accounts for the limit.
        """
        limit = self.concurrency
        if limit is None or (self.settings.scales and len(self.live) <= limit):
            return None
        runs = sorted(self.live.values(), key=self.precedence, reverse=True)[:limit]
        return sum(len(run.slots) for run in runs) + (limit - len(runs)) * self.gang

    @property
    def snapshot_quota(self) -> int | None:
        """The maximum size in bytes of the snapshots of all experiments, the sum of their quotas.

        None: no limit, because at least one experiment has no quota.
        """
        return _sum([m.settings.snapshot_quota for m in self.experiments.values()])

    @property
    def generated(self) -> int:
        """The number of jobs created so far with a proposal of a generator or with given hyperparameters."""
        return sum(m.generated for m in self.experiments.values())

    @property
    def jobs_left(self) -> int:
        """The number of jobs that RUNNING experiments may still create with a proposal of a generator or with given hyperparameters.

        It is the sum over these experiments of `Experiment.jobs_left`, which is about `ENDLESS` for one without a limit on jobs. The
        sum is at most `ENDLESS`.
        """
        return min(sum([m.jobs_left for m in self.experiments.values() if m.running]), ENDLESS)

    @property
    def best(self) -> tuple[str, int, float] | None:
        """(job id, position, value) of the best finite report of all experiments; None: there is none.

        It is the highest value in mode "max", the lowest in mode "min". Of equal values, that of the earliest experiment is returned.
        """
        found = [m.best for m in self.experiments.values() if m.best is not None]
        return max(found, key=lambda best: self.sign(best[2]), default=None)

    @property
    def claim(self) -> int | None:
        """The number of slots that the stream requests from the cluster; None: as many as possible.

        It is the demand that the policy stated while an experiment of the stream is RUNNING, else 0.
        """
        return self.demand if self.state is ExperimentState.RUNNING else 0

    @property
    def granted(self) -> int:
        """The number of slots that are counted against the share: all except draining ones, which must be returned."""
        return len(self.slots) - len(self.draining)

    @property
    def placed(self) -> int:
        """The number of occupied slots that are counted against the share."""
        return self.busy - sum(self.slots[slot].run is not None for slot in self.draining)

    def precedence(self, run: Run) -> tuple[bool, float, int, int]:
        """Return the sort key of a run for preemption. The run with the lowest key is preempted first.

        The order is: lowest priority first, then the least training at risk, then the newest job. Runs that are not preemptible come
        last. No training is at risk if the job has an available snapshot. Else its program may be unable to save one, so all training
        up to the run's position is at risk.
        """
        job = self.jobs[run.job]
        at_stake = run.position if self.snapshots.newest(run.job) is None else 0
        return not run.preemptible, job.priority or 0.0, at_stake, -job.ordinal

    def must_finish(self, run: Run) -> bool:
        """Return whether a smaller share must not preempt a run, because its job lost training that way and has no snapshot since."""
        return self.jobs[run.job].loses and self.snapshots.newest(run.job) is None

    def sign(self, value: float) -> float:
        """Return a metric value, negated in mode "min", so that a higher result is better."""
        return value if self.settings.mode == "max" else -value

    def idle_jobs(self) -> list[Job]:
        """Return the idle jobs that may be started, in the order of the queue (`IdleQueue`)."""
        return [self.jobs[job] for job in self.idle]

    def curve(self, job: Job) -> list[CurveEntry]:
        """Return a job's curve entries by position, ascending, beginning with those that it has from another job (`Job.prefix`)."""
        own = job.curve.upto(job.max_position)
        if job.origin is None:
            return own
        return [*job.prefix, *(p for p in own if p.position > job.origin[1])]

    def back(self, job: Job, position: int) -> Iterator[CurveEntry]:
        """Iterate lazily over the entries of `curve` from `position` (inclusive) downwards."""
        least = -1 if job.origin is None else job.origin[1]
        own = job.curve.back(min(position, job.max_position))
        yield from takewhile(lambda point: point.position > least, own)
        yield from (point for point in reversed(job.prefix) if point.position <= position)

    def set_origin(self, job: Job, source: tuple[str, int]) -> None:
        """Make a job continue another job's curve. Later changes of that curve do not affect the job.

        Args:
            job: The job.
            source: Id of the other job, and the position up to which the job has its results.
        """
        job.prefix = tuple(p for p in self.curve(self.jobs[source[0]]) if p.position <= source[1])
        job.origin = source

    def source_of(self, job: Job) -> tuple[str, int] | None:
        """Return the snapshot from which the job would resume, as (job id, position); None: there is none.

        It is the job's newest snapshot, or, for a fork without one, the snapshot that it was forked from.
        """
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
        """Add an experiment to the stream, with the results of earlier experiments that it can reuse. Return the new experiment."""
        for name, trial in earlier_of(event.earlier, event.experiment).items():
            known = self.earlier.get(name)
            if known is None or known.high_water <= trial.high_water:
                self.earlier[name] = (
                    trial if known is None else replace(trial, snapshots={**known.snapshots, **trial.snapshots})
                )
                self.snapshots.add_borrowed(info.sha256 for info in trial.snapshots.values())
        experiment = self.experiments[event.experiment] = Experiment(
            event.experiment, event.settings, event.payload, event.at
        )
        return experiment

    def emit(self, effect: Effect) -> None:
        """Append an effect to the effects of the current event."""
        self.effects.append(effect)

    def call(self, call: Call, run: Run | None = None) -> None:
        """Queue an up-call to the policy.

        Args:
            call: The up-call.
            run: The run that needs the decision in the answer; None: no run does. If the run ends first, the up-call is dropped.
        """
        self.conversation.queue(call, run)

    def wake(self) -> None:
        """Mark an `AllocateJobs` up-call as due, because a slot, job, limit or snapshot changed."""
        self.conversation.wake()

    def ask(
        self, ticket: str, kind: str, payload: object, experiment: ExperimentId = ExperimentId(""), seconds: float = 0.0
    ) -> None:
        """Send a question to a generator, a predictor or a solver, and store it until it is answered.

        Args:
            ticket: Identifies the question and its answer.
            kind: What is asked: "create_job" for a generator, "predict" for a predictor, else the name of a solver.
            payload: The question as plain data.
            experiment: The experiment whose generator is asked; empty for other questions.
            seconds: Time limit of a solver in seconds; 0: none.
        """
        question = AskOutside(self.id, ticket, kind, payload, experiment, seconds)
        self.asks[ticket] = question
        if not self.waits_for_person(question):
            self.emit(question)

    def waits_for_person(self, question: AskOutside) -> bool:
        """Return whether a question is for a failed generator. It is asked when a person resumes the experiment."""
        return bool(question.experiment) and self.experiments[ExperimentId(question.experiment)].generator_failed

    def repeat_generator_questions(self, experiment: Experiment) -> None:
        """Ask the unanswered questions to the failed generator of an experiment again, in their order."""
        experiment.generator_failed = False
        for question in self.asks.values():
            if question.experiment == experiment.id:
                self.emit(question)

    def drop_generator_questions(self, experiment: Experiment) -> None:
        """Drop the unanswered questions to the failed generator of an experiment that ends. Nobody answers them any more."""
        experiment.generator_failed = False
        for ticket in [ticket for ticket, question in self.asks.items() if question.experiment == experiment.id]:
            del self.asks[ticket]

    def due(self, timer: TimerKey) -> float | None:
        """Return the time at which a timer elapses, in seconds since the Unix epoch, or None if the timer is not set."""
        return self.timers.get(timer.ticket)

    def set_timer(self, timer: TimerKey, at: float | None) -> None:
        """Set a timer to elapse at the time `at`, in seconds since the Unix epoch.

        It replaces an earlier time. None cancels the timer.
        """
        if at is None:
            if self.timers.pop(timer.ticket, None) is None:
                return
        else:
            self.timers[timer.ticket] = at
        self.emit(SetTimer(self.id, timer.ticket, at))

    def send(self, run: Run, rank: int, body: CommandBody) -> None:
        """Send a command to the process of a run with the number `rank`. The command is stored until the agent acknowledges it."""
        process = run.ranks[rank]
        key = RunKey(self.id, run.job, run.attempt, rank)
        self.emit(Send(process.node, key, process.channel.send(body), body))

    def move(self, job: Job, state: JobState, why: Reason) -> None:
        """Change a job's state, and update everything that depends on it: idle queue, pins, snapshots, generator, and the job's row.

        An idle state becomes HELD if a person has paused the job. A job in an idle state is offered to the policy unless it is in
        backoff.

        Raises:
            IllegalTransitionError: The transition table does not permit the change.
        """
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
            job.held = job.displaced = False
            self.unpin_fork(job)
            self.collect(job)
            self.upload_remaining(job)
            self.tell_generator(job)
            self.withdraw_predictions(job)
        self.changed(job)

    def order_uploads(self, snapshots: Iterable[SnapshotId]) -> None:
        """Order the upload of the given snapshots, which nobody uploads, each from a node that has it."""
        nodes = [self.snapshots.order_upload(snapshot) for snapshot in snapshots]
        for node in dict.fromkeys(nodes):
            self.emit(OrdersGiven(node))

    def upload_remaining(self, job: Job) -> None:
        """Order the upload of the deferred snapshots that an ended job retains, so that they survive the loss of a node."""
        self.order_uploads(self.snapshots.wanted(lambda name: name == job.id))

    def tell_generator(self, job: Job) -> None:
        """Record the final result of a job for its experiment's generator, if the generator reads results.

        The recorded calls are passed to the generator in order, before the next configuration is requested from it.
        """
        if job.experiment.settings.generator_reads == "nothing":
            return
        metrics, position = self.best_metrics(job)
        given = None if job.generated else job.hyperparameters
        job.experiment.generator_calls.append(
            GeneratorCall("final", job.id, given, metrics, position=position, outcome=job.state)
        )

    def best_metrics(self, job: Job) -> tuple[Metrics, int]:
        """Return the metrics of a job's best report and its position; empty and 0 if there is none."""
        if job.best is None:
            return {}, 0
        position = job.best[1]
        if position in job.curve.points:
            return job.curve.points[position].metrics, position
        # The job was answered from another job's results, so the entry is in its prefix.
        return next(point.metrics for point in self.curve(job) if point.position == position), position

    def withdraw_predictions(self, job: Job) -> None:
        """Cancel the unanswered predictions for a job that ended, and report an error for each to the policy."""
        tickets, job.predictions = job.predictions, {}
        for ticket in tickets:
            if ticket in self.asks:
                del self.asks[ticket]
                self.emit(WithdrawQuestion(self.id, ticket))
                error = f"job {job.id} is {job.state.value} by now"
                self.call(PredictionReady(ticket.removeprefix(POLICY), job.id, error=error))

    def changed(self, job: Job) -> None:
        """Record a change of the job, and request that its row in AppStat is written again from its present state."""
        self.touched.touch(job.id)
        self.emit(JobChanged(job.experiment.id, job.id))

    def count(self, job: Job, change: int) -> None:
        """Add `change` (1 or -1) to the number of jobs that are in the state of `job`, in the stream and in its experiment."""
        for states in (self.states, job.experiment.states):
            states[job.state] = states.get(job.state, 0) + change

    def offer(self, job: Job) -> None:
        """Add an idle job to the idle queue, or to the paused jobs of its experiment if that is not RUNNING."""
        self.touched.touch(job.id)
        if job.experiment.running:
            self.idle.add(job.id, job.priority, displaced=job.displaced)
            self.wake()
        else:
            job.experiment.paused_jobs[job.id] = None

    def withdraw(self, job: Job) -> None:
        """Remove a job from the idle queue and from the paused jobs of its experiment, if it is there."""
        self.touched.touch(job.id)
        self.idle.discard(job.id)
        job.experiment.paused_jobs.pop(job.id, None)

    def unpin_fork(self, job: Job) -> None:
        """Remove the pin of `job` from the snapshot that it was forked from. Does nothing if the job has no such pin."""
        if job.fork_pin is not None:
            pin, job.fork_pin = job.fork_pin, None
            self.snapshots.unpin(pin, job.fork_holder)
            self.collect(self.jobs[pin[0]])

    def asked(self, job: Job) -> set[int]:
        """Return the positions of a job's snapshots that the policy requested and may still fork from.

        Those that the policy has released (`KeepSnapshots`) are left out. Empty if the stream is ending or has ended, unless the job's
        experiment ran out of time, or if the job is TERMINATED and no other experiment may use its snapshots (`lends`). With
        `Settings.forks_newest` only the newest available one is returned.
        """
        over = (self.state is ExperimentState.ENDING or self.state.ended) and not job.experiment.out_of_time
        if over or (job.state is JobState.TERMINATED and not self.lends(job)):
            return set()
        asked = job.asked if job.kept is None else job.kept
        if self.settings.forks_newest:
            return set([position for position in self.snapshots.positions(job.id) if position in asked][-1:])
        return asked

    def lends(self, job: Job) -> bool:
        """Return whether other experiments of the group may still use the snapshots of a job whose experiment has ended."""
        return job.lends and bool(self.alike(job.experiment))

    def alike(self, experiment: Experiment) -> list[Experiment]:
        """Return the other experiments of the group that have the same search plan as `experiment` and are neither ENDING nor ended."""
        plan = experiment.settings.plan
        others = (m for m in self.experiments.values() if m is not experiment and m.settings.plan == plan)
        return [m for m in others if plan and not (m.state.ended or m.state is ExperimentState.ENDING)]

    def _spared(self, job: Job) -> set[int]:
        """Return the positions of the snapshots that a job keeps in addition to those that its settings retain.

        These are the requested positions that the policy may still fork from and, for a COMPLETED job, all requested positions if the
        experiment keeps them for later experiments (`Settings.lasting`).
        """
        lasting = job.asked if job.terms.lasting and job.state is JobState.COMPLETED else set()
        return self.asked(job) | lasting

    def collect(self, job: Job) -> None:
        """Drop the snapshots of a job that are needed neither by the job, nor by the policy, nor by other experiments."""
        wanted = not job.state.ended or job.state is JobState.COMPLETED or (job.experiment.best or ("",))[0] == job.id
        wanted = wanted or (self.lends(job) and job.kept is None)
        wanted = wanted or (job.state is JobState.FAILED and job.experiment.settings.keeps_failed)
        self.snapshots_changed = True
        if self.snapshots.least(job.id) and wanted:
            return
        before = self.snapshots.count(job.id)
        self.drop(self.snapshots.collect(job.id, wanted, self._value_at(job), _keep(job), self._spared(job)))
        if self.snapshots.count(job.id) != before:
            self.changed(job)  # Its row lists its snapshots, even after the end.

    def for_others(self, job: Job) -> list[SnapshotEntry]:
        """Return the snapshots that a COMPLETED job keeps only because the policy requested them for other jobs.

        Empty if the job is in another state.
        """
        if job.state is not JobState.COMPLETED or not job.asked:
            return []
        own = self.snapshots.retained(job.id, self._value_at(job), _keep(job))
        return [e for e in self.snapshots.of(job.id) if e.info.position in job.asked - own]

    def _value_at(self, job: Job) -> Callable[[int], float | None]:
        """Return a function that returns the job's metric at a position, negated in mode "min", or None if there is none."""

        def value(position: int) -> float | None:
            point = job.curve.points.get(position)
            measured = point.metrics.get(self.settings.metric) if point is not None else None
            return None if measured is None else self.sign(measured)

        return value

    def drop(self, dropped: list[Dropped]) -> None:
        """Emit the effects that delete the contents of dropped snapshots from the nodes and from the store."""
        self.snapshots_changed = True
        for item in dropped:
            self.emit(ForgetSnapshot(self.id, item.sha256, item.nodes, True))

    def free(self, slot: str) -> None:
        """Make a slot vacant, because its run has left. Does nothing if the stream has no such slot or no run occupies it."""
        held = self.slots.get(slot)
        if held is not None and held.run is not None:
            held.run = None
            self.busy -= 1
            self.vacant.add(slot)
            self.wake()

    def occupy(self, slot: GrantedSlot, run: Run) -> None:
        """Assign a slot to a run and end the slot's reservation."""
        slot.run, slot.reserved, slot.reservation = run, False, ""
        self.busy += 1
        self.vacant.discard(slot.id)

    def reserve(self, slot: GrantedSlot, request: str = "") -> None:
        """Reserve an idle slot.

        Args:
            slot: The slot.
            request: Id of the client's request; empty: the policy reserves the slot.
        """
        slot.reserved, slot.reservation = True, request
        self.vacant.discard(slot.id)

    def release(self, slot: GrantedSlot) -> None:
        """End the reservation of an idle slot by the policy or a client, so that a run can be placed on the slot."""
        slot.reserved, slot.reservation = False, ""
        self.vacant.add(slot.id)

    def reservation(self, request: str) -> GrantedSlot | None:
        """Return the slot that is reserved for a client's request, or None if there is none. An empty `request` never matches."""
        if not request:
            return None
        return next((m for m in self.slots.values() if m.reservation == request), None)

    def give_up(self, slot: str) -> None:
        """Remove a slot from the stream, whether or not a run occupies it. The run is not changed.

        Raises:
            KeyError: The stream has no such slot.
        """
        self.busy -= self.slots.pop(slot).run is not None
        self.vacant.discard(slot)
        self.draining.discard(slot)

    def shed(self) -> None:
        """Return idle slots to the cluster: draining ones, those on nodes that the policy cannot use, and those above the share.

        A slot is above the share while more slots are granted than the share. Of these, slots that are not reserved are returned first.
        """
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
        """Make the next up-call, unless one is in flight: first the queued ones, then a due `AllocateJobs`.

        `AllocateJobs` is made only while an experiment is RUNNING, and only if a slot within the share is free, the policy must state
        its demand again, or refusals would otherwise not be delivered. `at` is the current time in seconds since the Unix epoch.
        """
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
    """Return the sum of limits, or None (no limit) if any of them is None."""
    given = list(limits)
    return None if None in given else sum(limit for limit in given if limit is not None)
