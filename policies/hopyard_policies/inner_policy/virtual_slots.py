"""The cluster as a tuner sees it: jobs are trials, slots are virtual, and runs that it starts become requests to the outer policy."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from typing_extensions import override

from hopyard.policy import (
    Cluster,
    CommandError,
    CurvePoint,
    ExperimentView,
    Incumbent,
    JobState,
    JobView,
    RunMode,
    SlotView,
)
from hopyard.policy.vocabulary import (
    AmendRun,
    AnswerJob,
    Ask,
    Command,
    CreateJob,
    EndExperiment,
    ForkJob,
    LabelJob,
    Predict,
    ReleaseSlot,
    ReserveSlot,
    StartJob,
    SuspendJob,
    TerminateJob,
    WakeAt,
)
from hopyard_policies.inner_policy.trials import Origin, Trials

Curve = Callable[[str], Sequence[CurvePoint]]

_PASSED_ON = (CreateJob, ForkJob, LabelJob, Predict, Ask, WakeAt, EndExperiment)


@dataclass(frozen=True, slots=True)
class Scene:
    """The data behind a tuner's view at one moment.

    Attributes:
        cluster: The real cluster.
        trials: Its jobs as trials.
        busy: Virtual slots with a run, and their trials.
        reserved: Virtual slots that the tuner has reserved.
        width: The number of virtual slots.
        jobs_left: The number of jobs that the tuner may create.
        curve: Returns a trial's curve up to the position that the tuner knows.
        snapshots: Returns the positions that a trial can be started or forked from.
        saved: Takes a trial and a position. Returns a job with a snapshot of the trial's state there, or None.
        copies: Whether the tuner may fork trials.
    """

    cluster: Cluster
    trials: Trials
    busy: Mapping[str, str]
    reserved: frozenset[str]
    width: int
    jobs_left: int
    curve: Curve
    snapshots: Callable[[str], Sequence[int]]
    saved: Callable[[str, int], str | None]
    copies: bool


class InnerCluster(Cluster):
    """The view of one up-call on a tuner.

    Creations, forks, labels, requests, timers and ends of experiments are submitted to the real cluster at once. Other
    commands, such as starts of virtual runs, are collected for `TunerState`.

    Args:
        scene: The data to show.

    Attributes:
        commands: The collected commands, in order.
        created: The ids of created jobs.
        forked: The parent and the fork position of each forked job.
        tickets: The tickets of requests made in this up-call.
    """

    def __init__(self, scene: Scene) -> None:
        self.commands: list[Command] = []
        self.created: list[str] = []
        self.forked: dict[str, Origin] = {}
        self.tickets: list[str] = []
        self._scene = scene
        self._used = set(scene.busy) | scene.reserved
        self._taken: set[str] = set()

    # ------------------------------------------------------------------------------------------------------------- view

    @property
    @override
    def now(self) -> float:
        return self._scene.cluster.now

    @property
    @override
    def rng(self) -> random.Random:
        return self._scene.cluster.rng

    @property
    @override
    def experiment(self) -> ExperimentView:
        return replace(self._scene.cluster.experiment, jobs_left=max(self._scene.jobs_left - len(self.created), 0))

    @property
    @override
    def experiments(self) -> Mapping[str, ExperimentView]:
        real = self._scene.cluster.experiments
        return real if len(real) > 1 else {self.experiment.id: self.experiment}

    @property
    @override
    def share(self) -> int:
        return self._scene.width

    @property
    @override
    def jobs(self) -> Mapping[str, JobView]:
        return self._scene.trials

    @property
    @override
    def slots(self) -> Mapping[str, SlotView]:
        return {name: self._slot(name) for name in self._names()}

    @override
    def idle_slots(self) -> Sequence[SlotView]:
        return [SlotView(name, "virtual") for name in self._names() if name not in self._used]

    @override
    def idle_jobs(self) -> Sequence[JobView]:
        waiting = [job for job in self._scene.trials.idle() if job.id not in self._taken]
        return sorted(waiting, key=lambda job: (-(job.priority or 0.0), job.ordinal))

    @override
    def count(self, *states: JobState) -> int:
        trials = self._scene.trials
        if states == (JobState.CREATING,) and trials.heard() and not self._scene.cluster.count(*states):
            return 0
        return sum(trials.state(job) in states for job in trials)

    @override
    def waits(self, job: str) -> bool:
        return job not in self._taken and self._scene.trials.waits(job)

    @override
    def queued(self) -> int:
        return len(list(self._scene.trials.waiting()))

    @override
    def live_jobs(self) -> Sequence[JobView]:
        live = set(self._scene.busy.values())
        return [self._scene.trials[job] for job in self._scene.trials if job in live]

    @override
    def open_jobs(self) -> Sequence[JobView]:
        trials = self._scene.trials
        return [trials[job] for job in trials if not trials.state(job).ended]

    @override
    def busy_slots(self) -> int:
        return len(self._scene.busy)

    @override
    def curve(self, job: str) -> Sequence[CurvePoint]:
        self._know(job)
        return self._scene.curve(job)

    @override
    def snapshots(self, job: str) -> Sequence[int]:
        self._know(job)
        return self._scene.snapshots(job)

    @property
    @override
    def incumbent(self) -> Incumbent | None:
        found = self._scene.cluster.incumbent
        return found if found is not None and found.job in self._scene.trials else None

    def _names(self) -> list[str]:
        return [f"v{number}" for number in range(1, self._scene.width + 1)]

    def _slot(self, name: str) -> SlotView:
        return SlotView(name, "virtual", self._scene.busy.get(name, ""))

    # ------------------------------------------------------------------------------------------------------- down-calls

    @override
    def new_job_id(self) -> str:
        return self._scene.cluster.new_job_id()

    @override
    def new_ticket(self) -> str:
        ticket = self._scene.cluster.new_ticket()
        self.tickets.append(ticket)
        return ticket

    @override
    def submit(self, command: Command) -> None:
        match command:
            case StartJob():
                self._start(command)
            case ReserveSlot(slot):
                self._demand(command, slot in self._names() and slot not in self._used, "it is not idle")
                self._used.add(slot)
            case ReleaseSlot(slot):
                self._demand(command, slot in self._used and slot not in self._scene.busy, "it is not reserved")
                self._used.discard(slot)
            case CreateJob():
                self.created.append(command.job)
            case TerminateJob():
                self._know(command.job)
                self._taken.add(command.job)
            case AmendRun() | SuspendJob() | LabelJob() | Predict() | AnswerJob():
                self._know(command.job)
            case ForkJob():
                command = self._fork(command)
            case Ask() | WakeAt() | EndExperiment():
                pass
        if isinstance(command, _PASSED_ON):
            self._scene.cluster.submit(command)
        else:
            self.commands.append(command)

    def _fork(self, command: ForkJob) -> ForkJob:
        """Convert a fork of a trial to a fork of a job that has the snapshot of the trial's state.

        If no job has it, the command names the trial's own job, and the engine refuses the fork with the reason.
        """
        self._know(command.parent)
        self._demand(command, self._scene.copies, "a tuner that copies trials says so: `copies = True`")
        self.forked[command.job] = (command.parent, command.position)
        return replace(command, parent=self._scene.saved(command.parent, command.position) or command.parent)

    def _start(self, command: StartJob) -> None:
        self._know(command.job)
        state = self._scene.trials.state(command.job)
        self._demand(command, state.idle and command.job not in self._taken, f"the job is {state.value}")
        self._demand(command, command.mode is RunMode.TRAIN, "a tuner can only train")
        source = command.from_snapshot
        self._demand(command, source is None or source[0] == command.job, "it starts from another job's snapshot")
        self._demand(command, len(command.slots) == 1, "a trial trains on one slot")
        for slot in command.slots:
            self._demand(command, slot in self._names() and slot not in self._scene.busy, "the slot is not idle")
            self._used.add(slot)
        self._taken.add(command.job)

    def _know(self, job: str) -> None:
        if job not in self._scene.trials and job not in self.created and job not in self.forked:
            raise CommandError(f"there is no job {job!r}; there are {len(self._scene.trials)} jobs")

    def _demand(self, command: Command, fits: bool, problem: str) -> None:
        if not fits:
            raise CommandError(f"{command}: {problem}")
