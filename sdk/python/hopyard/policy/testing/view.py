"""The view of one up-call in the virtual cluster, which checks commands against the exact state."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from hopyard.policy.cluster import Cluster
from hopyard.policy.views import CommandError, CurvePoint, ExperimentView, Incumbent, JobView, SlotView
from hopyard.policy.vocabulary import (
    MOST_SECONDS,
    AmendRun,
    AnswerJob,
    Ask,
    BillRun,
    Call,
    Command,
    CreateJob,
    Data,
    EndExperiment,
    ForkJob,
    JobState,
    KeepSnapshots,
    LabelJob,
    Predict,
    ReleaseSlot,
    ReserveSlot,
    RunMode,
    StartJob,
    SuspendJob,
    TerminateJob,
    WakeAt,
)


class IllegalCommand(CommandError):
    """A policy gave an impossible command. The message names the up-call, the command, what was found, and what is allowed."""


@dataclass(frozen=True)
class UpCallMoment:
    """Everything that a policy can see in one up-call. The history stores it, so that the up-call can be repeated.

    Attributes:
        number: The number of the up-call, from 1.
        now: The virtual time in seconds.
        seed: The seed of the up-call's random numbers.
        experiment: What the policy knows about the experiment.
        share: Number of slots that the experiment may hold.
        jobs: All jobs by id, in order of creation.
        slots: The slots that the experiment holds, by id.
        reserved: The ids of the reserved slots.
        queue: The ids of the idle jobs, first the next one to start.
        curves: The reports of each job.
        saves: The positions of each job's snapshots, ascending.
        incumbent: The best finite result; None before the first one.
        next_job: The number of the next job to be created.
        next_ticket: The number of the next ticket.
        data: The partitioned data; None: the experiment names none.
        scaling: Seconds per unit, by kind of host and number of slots.
    """

    number: int
    now: float
    seed: int
    experiment: ExperimentView
    share: int
    jobs: Mapping[str, JobView]
    slots: Mapping[str, SlotView]
    reserved: frozenset[str] = frozenset()
    queue: tuple[str, ...] = ()
    curves: Mapping[str, tuple[CurvePoint, ...]] = field(default_factory=dict)
    saves: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    incumbent: Incumbent | None = None
    next_job: int = 1
    next_ticket: int = 1
    data: Data | None = None
    scaling: Mapping[str, Mapping[int, float]] = field(default_factory=dict)


class UpCallView(Cluster):
    """The `Cluster` of one up-call in the virtual cluster: it shows one moment and collects commands.

    The moment is exact here, so an impossible command is an error in the policy and raises `IllegalCommand`. In a real
    cluster the view can be out of date, and the engine refuses such commands.

    Attributes:
        commands: The commands given so far, in order.
        tickets: The number of tickets given out so far.
    """

    def __init__(self, moment: UpCallMoment, call: Call) -> None:
        self.commands: list[Command] = []
        self.tickets = 0
        self._moment, self._call = moment, call
        self._rng = random.Random(moment.seed)
        # Changes made by this answer so far.
        self._states = {job.id: job.state for job in moment.jobs.values()}
        self._busy = {slot.id: slot.job for slot in moment.slots.values()}
        self._reserved = set(moment.reserved)
        self._created = self._generated = 0

    # ------------------------------------------------------------------------------------------------------------- view

    @property
    def now(self) -> float:
        """The virtual time of the up-call, in seconds."""
        return self._moment.now

    @property
    def rng(self) -> random.Random:
        """The random generator of the up-call, seeded with `UpCallMoment.seed`."""
        return self._rng

    @property
    def experiment(self) -> ExperimentView:
        """What the policy knows about the experiment at the moment of the up-call."""
        return self._moment.experiment

    @property
    def share(self) -> int:
        """Number of slots that the experiment may hold."""
        return self._moment.share

    @property
    def jobs(self) -> Mapping[str, JobView]:
        """All jobs by id, in order of creation."""
        return MappingProxyType(dict(self._moment.jobs))

    @property
    def data(self) -> Data | None:
        """The experiment's partitions and the nodes that have them; None: it names no data."""
        return self._moment.data

    @property
    def scaling(self) -> Mapping[str, Mapping[int, float]]:
        """Earlier measurements: seconds per unit, by kind of host and number of slots."""
        return self._moment.scaling

    @property
    def slots(self) -> Mapping[str, SlotView]:
        """The slots that the experiment holds, by id, ordered by id."""
        return MappingProxyType(dict(self._moment.slots))

    def idle_slots(self) -> Sequence[SlotView]:
        """Return the slots that are idle and were not used or reserved by a command of this answer."""
        slots = self._moment.slots.values()
        return [m for m in slots if not self._busy[m.id] and m.id not in self._reserved]

    def idle_jobs(self) -> Sequence[JobView]:
        """Return the waiting jobs that no command of this answer has started or ended, in the order of the queue."""
        return [self._moment.jobs[job] for job in self._moment.queue if self._states[job].idle]

    def curve(self, job: str) -> Sequence[CurvePoint]:
        """Return a job's reports so far, by ascending position; raise `IllegalCommand` if there is no such job."""
        return self._moment.curves[self._known("curve", job).id]

    def snapshots(self, job: str) -> Sequence[int]:
        """Return the positions of a job's snapshots, ascending; raise `IllegalCommand` if there is no such job."""
        return self._moment.saves[self._known("snapshots", job).id]

    @property
    def incumbent(self) -> Incumbent | None:
        """The best finite result so far; None before the first one."""
        return self._moment.incumbent

    # ------------------------------------------------------------------------------------------------------- down-calls

    def new_job_id(self) -> str:
        """Return the id that the next created job must have."""
        return str(self._moment.next_job + self._created)

    def new_ticket(self) -> str:
        """Return a ticket that no earlier request of the experiment has."""
        self.tickets += 1
        return f"t{self._moment.next_ticket + self.tickets - 1}"

    def submit(self, command: Command) -> None:
        """Check a command against the state with the earlier commands of this answer, and add it to the answer.

        Raises:
            IllegalCommand: The command is impossible in this state.
        """
        match command:
            case ReserveSlot(slot):
                self._slot(command, slot, reserved_too=False)
                self._reserved.add(slot)
            case ReleaseSlot(slot):
                self._demand(command, slot in self._reserved, f"slot {slot!r} is not reserved")
                self._reserved.discard(slot)
            case CreateJob():
                if command.limit is None:
                    left = self._moment.experiment.jobs_left - self._generated
                    self._demand(command, left > 0, "no more jobs may be created (jobs_left is 0)")
                    self._generated += 1
                fits = command.limit is None or (command.limit >= 1 and command.hyperparameters is not None)
                self._demand(command, fits, "with a limit, at least 1, it needs hyperparameters")
                self._new_job(command, command.job)
            case ForkJob():
                self._known(command, command.parent)
                self._snapshot(command, command.parent, command.position)
                self._new_job(command, command.job)
            case StartJob():
                self._start(command)
            case AmendRun():
                state = self._states_of(command.job)
                fits = state in (JobState.STARTING, JobState.RUNNING)
                self._state(command, command.job, "STARTING or RUNNING", fits)
                ends = [*command.snapshot_at, *([] if command.until is None else [command.until])]
                top = self._known(command, command.job).max_position
                self._demand(command, all(0 < end <= top for end in ends), f"positions must lie in 1..{top}")
            case SuspendJob(job):
                self._state(command, job, "live", self._states_of(job).live)
                self._states[job] = JobState.SUSPENDING
            case TerminateJob(job):
                state = self._states_of(job)
                self._states[job] = state if state.ended else JobState.SUSPENDING if state.live else JobState.TERMINATED
            case AnswerJob():
                state = self._states_of(command.job)
                self._state(command, command.job, "waiting", not state.ended and not state.live)
                top = self._known(command, command.source).high_water
                own = self._known(command, command.job).position >= self.experiment.max_position
                fits = (own or command.source != command.job) and command.position <= top
                self._demand(command, fits, f"another job's results up to {top} are there")
                self._states[command.job] = JobState.COMPLETED if command.completes else state
            case LabelJob():
                self._known(command, command.job)
                self._demand(command, not math.isnan(command.priority), "a priority is a number, not NaN")
            case Predict():
                self._state(command, command.job, "not ended", not self._states_of(command.job).ended)
            case WakeAt():
                self._demand(command, math.isfinite(command.at), "the time must be finite")
            case EndExperiment(_, winner):
                won = not winner or self._known(command, winner).high_water > 0
                self._demand(command, won, f"job {winner!r} has reported nothing, so it cannot have won")
            case BillRun():
                self._state(command, command.job, "running", self._states_of(command.job).live)
                for name, _ in command.wanted:
                    self._demand(command, name in self.experiments, f"there is no experiment {name!r}")
            case KeepSnapshots(job, positions):
                top = self._known(command, job).max_position
                self._demand(command, all(0 < p <= top for p in positions), f"positions must lie in 1..{top}")
            case Ask(_, _, _, seconds):
                self._demand(command, 0 < seconds <= MOST_SECONDS, f"a solver cannot think for {seconds:g} s")
        self.commands.append(command)

    # ----------------------------------------------------------------------------------------------------------- checks

    def _start(self, command: StartJob) -> None:
        job = self._known(command, command.job)
        self._state(command, job.id, "idle", self._states[job.id].idle)
        gang = command.slots
        self._demand(command, bool(gang) and len(set(gang)) == len(gang), "it needs one or more different slots")
        for slot in gang:
            self._slot(command, slot, reserved_too=True)
        start = job.position
        if command.from_snapshot is not None:
            start = command.from_snapshot[1]
            self._snapshot(command, *command.from_snapshot)
        elif command.mode is RunMode.EVALUATE:
            self._demand(command, bool(self.snapshots(job.id) or job.parent), "it has no snapshot to evaluate")
        if command.mode is RunMode.TRAIN:
            top = self._moment.jobs[job.id].max_position
            until = top if command.until is None else command.until
            self._demand(command, start < until <= top, f"until is {until}; it must lie in {start + 1}..{top}")
            saves = command.snapshot_at
            self._demand(command, all(start < p <= until for p in saves), f"save points lie in {start + 1}..{until}")
        self._demand(command, set(command.inputs) <= set(gang), "inputs name slots that are not in the gang")
        if self._moment.data is not None:
            holders = {each.name: each.nodes for each in (*self._moment.data.train, *self._moment.data.evaluate)}
            for slot, name in command.inputs.items():
                there = self._moment.slots[slot].node in holders.get(name, ())
                self._demand(command, there, f"slot {slot!r} does not hold {name!r}")
        self._states[job.id] = JobState.STARTING
        for slot in gang:
            self._busy[slot] = job.id
            self._reserved.discard(slot)

    def _new_job(self, command: Command, job: str) -> None:
        self._demand(command, job == self.new_job_id(), f"the next job's id is {self.new_job_id()!r}")
        self._created += 1

    def _slot(self, command: Command, slot: str, *, reserved_too: bool) -> None:
        self._demand(command, slot in self._busy, f"slot {slot!r} is not one of {sorted(self._busy)}")
        self._demand(command, not self._busy[slot], f"slot {slot!r} is busy with job {self._busy[slot]!r}")
        free = reserved_too or slot not in self._reserved
        self._demand(command, free, f"slot {slot!r} is reserved already")

    def _snapshot(self, command: Command, job: str, position: int) -> None:
        saves = self._moment.saves.get(job, ())
        self._demand(command, position in saves, f"job {job!r} has snapshots at {list(saves)} only")
        view = self._moment.jobs[job]
        own = not view.parent or position > view.fork_position
        self._demand(command, own, f"job {job!r} has no own snapshot at {position}, where it was forked")

    def _states_of(self, job: str) -> JobState:
        self._known("command", job)
        return self._states[job]

    def _state(self, command: Command, job: str, allowed: str, fits: bool) -> None:
        self._demand(command, fits, f"job {job!r} is {self._states[job].value}; it must be {allowed}")

    def _known(self, what: Command | str, job: str) -> JobView:
        self._demand(what, job in self._moment.jobs, f"job {job!r} is unknown at this moment")
        return self._moment.jobs[job]

    def _demand(self, what: object, fits: bool, problem: str) -> None:
        if not fits:
            raise IllegalCommand(f"{describe(self._moment, self._call)}: {what}: {problem}")


def describe(moment: UpCallMoment, call: Call) -> str:
    """Return the number, kind and time of an up-call as text, for messages."""
    return f"up-call {moment.number} ({type(call).__name__} at {moment.now:g} s)"
