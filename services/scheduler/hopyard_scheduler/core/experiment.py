"""One experiment's part of the core: its state, and the small operations that every handler uses.

`dispatch.handle` takes one event; the handlers leave their effects in `effects`. They stand in modules of their own:
`messages` (what runs say), `commands` (what the policy and people want), `lifecycle` (pause, end, share), `placement` (nodes).
"""

from __future__ import annotations

import enum
from collections import deque

from hopyard.policy.vocabulary import (
    AllocateJobs,
    Call,
    IterationFinish,
    JobState,
    Verdict,
)
from hopyard_scheduler.core.curve import Point
from hopyard_scheduler.core.effects import (
    AskOutside,
    CommandBody,
    Effect,
    FinalPerformance,
    ForgetSnapshot,
    JobChanged,
    MachineReturned,
    Send,
    SetTimer,
    UpCall,
)
from hopyard_scheduler.core.events import ExperimentCreated, RunKey, Updated
from hopyard_scheduler.core.idle import IdleQueue
from hopyard_scheduler.core.model import HOLD, GeneratorCall, HeldMachine, Job, Run
from hopyard_scheduler.core.snapshots import Dropped, SnapshotBook
from hopyard_scheduler.core.states import change_state

_MASK = (1 << 63) - 1
_GOLDEN = 0x9E3779B97F4A7C15


class Phase(enum.Enum):
    """Where an experiment stands."""

    RUNNING = "RUNNING"
    PAUSING = "PAUSING"
    PAUSED = "PAUSED"
    ENDING = "ENDING"
    COMPLETED = "COMPLETED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"

    @property
    def over(self) -> bool:
        """Whether it holds nothing any more."""
        return self in (Phase.COMPLETED, Phase.STOPPED, Phase.FAILED)


class Experiment:
    """The state of one experiment."""

    def __init__(self, created: ExperimentCreated) -> None:
        self.id = created.experiment
        self.settings = created.settings
        self.payload = created.payload
        self.created_at = created.at
        self.now = created.at
        self.ended_at: float | None = None
        self.phase = Phase.RUNNING
        self.reason = ""
        self.final: tuple[Phase, str] | None = None
        self.spent = 0.0
        self.running_since: float | None = created.at

        self.jobs: dict[str, Job] = {}
        self.states: dict[JobState, int] = {}
        self.idle = IdleQueue()
        self.open: dict[str, Job] = {}
        self.live: dict[str, Run] = {}
        self.machines: dict[str, HeldMachine] = {}
        self.vacant: set[str] = set()
        self.draining: set[str] = set()
        self.busy = 0
        self.snapshots = SnapshotBook(created.settings.keep_latest, created.settings.keep_best)
        self.share = 0
        self.demand: int | None = None
        self.claimed: int | None = None
        self.overdue = False
        self.ordinals = 0
        self.generated = 0
        self.exhausted = False
        self.generator_calls: list[GeneratorCall] = []
        self.told_generator = 0  # So many of these calls are known to have reached it.
        self.asked_after: dict[str, int] = {}
        self.best: tuple[str, int, float] | None = None

        self.calls: deque[tuple[Call, Run | None]] = deque()
        self.in_flight: tuple[int, Call, Run | None] | None = None
        self.call_number = 0
        self.verdicts: list[Verdict] = []
        self.asks: dict[str, AskOutside] = {}
        self.timers: dict[str, float] = {}
        self.requests: set[str] = set()
        self.attention = True
        self.outdated = False  # Jobs can be placed that could not when the policy said how many machines it can use.
        self.at_rest = False
        self.answers = 0
        self.refusal = ""
        self.wound_up = False
        self.quarantined = False
        self.deferred: list[Updated] = []
        self.effects: list[Effect] = []

    # ------------------------------------------------------------------------------------------------------- questions

    @property
    def jobs_left(self) -> int:
        """Jobs that may still be created from the generator or with given hyperparameters."""
        return 0 if self.exhausted else max(self.settings.jobs - self.generated, 0)

    @property
    def claim(self) -> int | None:
        """Machines that it can use: none while it does not run; None: as many as it can get."""
        return self.demand if self.phase is Phase.RUNNING else 0

    @property
    def held(self) -> int:
        """Machines that count against its share: all but those of drained nodes that it has yet to leave."""
        return len(self.machines) - len(self.draining)

    @property
    def placed(self) -> int:
        """Machines with a run that count against its share."""
        return self.busy - sum(self.machines[machine].run is not None for machine in self.draining)

    def sign(self, value: float) -> float:
        """A metric's value turned so that higher is better."""
        return value if self.settings.mode == "max" else -value

    def running_seconds(self, at: float) -> float:
        """Unpaused seconds up to a time."""
        return self.spent + (at - self.running_since if self.running_since is not None else 0.0)

    def idle_jobs(self) -> list[Job]:
        """Jobs that wait for a machine: highest priority first, then first come."""
        return [self.jobs[job] for job in self.idle]

    def curve(self, job: Job) -> list[Point]:
        """A job's points, beginning with its ancestor's prefix."""
        own = job.curve.upto(self.settings.max_position)
        if job.origin is None:
            return own
        return [*job.prefix, *(p for p in own if p.position > job.origin[1])]

    def set_origin(self, job: Job, source: tuple[str, int]) -> None:
        """From now on the job continues another's curve, as it is now: what becomes of that one later is its own."""
        job.prefix = tuple(p for p in self.curve(self.jobs[source[0]]) if p.position <= source[1])
        job.origin = source

    def source_of(self, job: Job) -> tuple[str, int] | None:
        """The snapshot that the job would go on from: its own newest one, or that of its origin."""
        newest = self.snapshots.newest(job.id)
        if newest is not None:
            return (job.id, newest.info.position)
        if job.forked and job.origin is not None:
            entry = self.snapshots.get(*job.origin)
            if entry is not None and entry.available:
                return job.origin
        return None

    # ------------------------------------------------------------------------------------------------------ operations

    def emit(self, effect: Effect) -> None:
        """Adds an effect."""
        self.effects.append(effect)

    def call(self, call: Call, run: Run | None = None) -> None:
        """Queues an up-call; one that needs a decision goes with its run and is dropped if that is over by then."""
        self.calls.append((call, run))
        self.at_rest = False

    def wake(self) -> None:
        """Something may be allocated that could not be before."""
        self.attention = True
        self.at_rest = False

    def ask(self, ticket: str, kind: str, payload: object) -> None:
        """Asks the outside, once for each ticket."""
        question = AskOutside(self.id, ticket, kind, payload)
        self.asks[ticket] = question
        self.emit(question)

    def set_timer(self, ticket: str, at: float | None) -> None:
        """Sets, moves or cancels a timer."""
        if at is None:
            if self.timers.pop(ticket, None) is None:
                return
        else:
            self.timers[ticket] = at
        self.emit(SetTimer(self.id, ticket, at))

    def send(self, run: Run, rank: int, body: CommandBody) -> None:
        """Sends a command to a process of a run."""
        process = run.ranks[rank]
        key = RunKey(self.id, run.job, run.attempt, rank)
        self.emit(Send(process.node, key, process.channel.send(body), body))

    def move(self, job: Job, state: JobState, why: str) -> None:
        """Changes a job's state and what follows from it: the idle queue, pins, snapshots, its row."""
        self.count(job.state, -1)
        change_state(job, state, why)
        self.count(state, 1)
        self.idle.discard(job.id)
        if state.idle and HOLD + job.id not in self.timers:
            self.idle.add(job.id, job.priority)
            self.wake()
        if not state.ended:
            self.open[job.id] = job
        else:
            self.open.pop(job.id, None)
            self.unpin_fork(job)
            self.collect(job)
            best = job.curve.points.get(job.best[1]) if job.best is not None else None
            metrics = best.metrics if best is not None else {}
            self.generator_calls.append(GeneratorCall("final", job.id, metrics=metrics))
            self.emit(FinalPerformance(self.id, job.id, metrics))
        self.emit(JobChanged(self.id, job.id))

    def count(self, state: JobState, change: int) -> None:
        """Keeps the number of jobs in each state."""
        self.states[state] = self.states.get(state, 0) + change

    def unpin_fork(self, job: Job) -> None:
        """Lets the snapshot go that the job was forked from."""
        if job.fork_pin is not None:
            pin, job.fork_pin = job.fork_pin, None
            self.snapshots.unpin(pin, job.fork_holder)
            self.collect(self.jobs[pin[0]])

    def collect(self, job: Job) -> None:
        """Drops the snapshots of a job that nobody needs."""
        wanted = not job.state.ended or job.state is JobState.COMPLETED or (self.best or ("",))[0] == job.id

        def value(position: int) -> float | None:
            point = job.curve.points.get(position)
            measured = point.metrics.get(self.settings.metric) if point is not None else None
            return None if measured is None else self.sign(measured)

        self.drop(self.snapshots.collect(job.id, wanted, value))

    def drop(self, dropped: list[Dropped]) -> None:
        """Lets the outside delete what nobody refers to."""
        for item in dropped:
            self.emit(ForgetSnapshot(self.id, item.sha256, item.nodes, True))

    def free(self, machine: str) -> None:
        """A run has left a machine."""
        held = self.machines.get(machine)
        if held is not None and held.run is not None:
            held.run = None
            self.busy -= 1
            self.vacant.add(machine)
            self.wake()

    def occupy(self, machine: HeldMachine, run: Run) -> None:
        """A run gets a machine."""
        machine.run, machine.reserved = run, False
        self.busy += 1
        self.vacant.discard(machine.id)

    def reserve(self, machine: HeldMachine, reserved: bool) -> None:
        """The policy keeps an idle machine for itself, or lets it go."""
        machine.reserved = reserved
        (self.vacant.discard if reserved else self.vacant.add)(machine.id)

    def give_up(self, machine: str) -> None:
        """The experiment holds a machine no more."""
        self.busy -= self.machines.pop(machine).run is not None
        self.vacant.discard(machine)
        self.draining.discard(machine)

    def shed(self) -> None:
        """Gives idle machines of drained nodes and those above the share back to the cluster."""
        if len(self.machines) == self.busy or (self.held <= self.share and not self.draining):
            return
        for machine in sorted(self.machines.values(), key=lambda m: (m.id not in self.draining, m.reserved, m.id)):
            if machine.id not in self.draining and self.held <= self.share:
                return
            if machine.idle:
                self.give_up(machine.id)
                self.emit(MachineReturned(self.id, machine.id))

    # -------------------------------------------------------------------------------------------------------- up-calls

    def next_call(self, at: float) -> None:
        """Makes the next up-call, unless one is under way: one at a time, `AllocateJobs` when nothing else waits."""
        if self.in_flight is not None or self.phase.over:
            return
        while self.calls:
            call, run = self.calls.popleft()
            if isinstance(call, IterationFinish) and (run is None or self.live.get(run.job) is not run or run.ended):
                continue
            self._make(call, run, at)
            return
        if not self.attention or self.phase is not Phase.RUNNING:
            return
        placeable = bool(self.vacant) and self.placed < self.share
        untold = bool(self.verdicts) and not self.live  # Nothing else would tell the policy what was refused.
        if placeable or untold or self.outdated:
            self.attention = False
            self._make(AllocateJobs(), None, at)

    def _make(self, call: Call, run: Run | None, at: float) -> None:
        self.call_number += 1
        self.outdated = False
        self.in_flight = (self.call_number, call, run)
        verdicts, self.verdicts = tuple(self.verdicts), []
        seed = (self.settings.seed * _GOLDEN + self.call_number * 0xBF58476D1CE4E5B9) & _MASK
        self.emit(UpCall(self.id, self.call_number, at, seed, call, verdicts))
