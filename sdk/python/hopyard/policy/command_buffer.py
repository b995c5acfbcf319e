"""The common base of all implementations of `Cluster`: the time, random numbers, and the collected commands of an up-call."""

from __future__ import annotations

import random
from collections.abc import Container
from typing import Final

from typing_extensions import override

from hopyard.policy.cluster import Cluster
from hopyard.policy.views import CommandError
from hopyard.policy.vocabulary import (
    AmendRun,
    AnswerJob,
    BillRun,
    Command,
    EndExperiment,
    ForkJob,
    KeepSnapshots,
    LabelJob,
    Predict,
    ReleaseSlot,
    ReserveSlot,
    StartJob,
    SuspendJob,
    TerminateJob,
)

MAX_COMMANDS: Final = 10_000
"""Maximum number of commands in one answer, in addition to two per job."""


def most_commands(jobs: int) -> int:
    """Return the maximum number of commands in one answer: `MAX_COMMANDS` (10,000) and two for each job.

    The limit exists because the scheduler processes an answer as a whole: some tenths of a second for this number.

    Args:
        jobs: Number of jobs of the experiment at the up-call, including ended ones.
    """
    return MAX_COMMANDS + 2 * jobs


class CollectingView(Cluster):
    """The view of one up-call that collects and checks the commands of the policy. Subclasses add the state of the cluster.

    Args:
        number: Number of the up-call in the stream.
        at: Time of the up-call, in seconds since the Unix epoch.
        seed: Seed of the random numbers of this up-call.
        made: Number of jobs created so far, from which the ids of new jobs follow.
        slots: Ids of the slots that the experiment holds.
        earlier: Names ("EXPERIMENT/JOB") of the trainings of earlier experiments that `answer_job` accepts.

    Attributes:
        commands: The commands given so far in this up-call, in order.
    """

    def __init__(
        self, number: int, at: float, seed: int, made: int, slots: Container[str], earlier: Container[str]
    ) -> None:
        self._number = number
        self._at = at
        self._seed = seed
        self._made = made
        self._granted = slots
        self._sources = earlier
        self._rng: random.Random | None = None
        self._created = 0
        self._tickets = 0
        self._used_slots: set[str] = set()
        self._released: set[str] = set()
        self._started: set[str] = set()
        self.commands: list[Command] = []

    @property
    @override
    def now(self) -> float:
        return self._at

    @property
    @override
    def rng(self) -> random.Random:
        if self._rng is None:
            self._rng = random.Random(self._seed)
        return self._rng

    @override
    def new_job_id(self) -> str:
        self._created += 1
        return str(self._made + self._created)

    @override
    def new_ticket(self) -> str:
        self._tickets += 1
        return f"{self._number}.{self._tickets}"

    @override
    def submit(self, command: Command) -> None:
        name = type(command).__name__
        match command:
            case ReserveSlot() | ReleaseSlot():
                self._know_slot(name, command.slot)
                taken = isinstance(command, ReserveSlot)
                (self._used_slots.add if taken else self._used_slots.discard)(command.slot)
                (self._released.discard if taken else self._released.add)(command.slot)
            case StartJob():
                self._know_job(name, command.job)
                for slot in command.slots:
                    self._know_slot(name, slot)
                self._used_slots.update(command.slots)
                self._started.add(command.job)
            case ForkJob():
                self._know_job(name, command.parent)
            case AnswerJob():
                self._know_job(name, command.job)
                if command.source not in self._sources:
                    self._know_job(name, command.source)
            case AmendRun() | SuspendJob() | LabelJob() | Predict() | BillRun() | KeepSnapshots():
                self._know_job(name, command.job)
            case EndExperiment() if command.winner:
                self._know_job(name, command.winner)
            case TerminateJob():
                self._know_job(name, command.job)
                self._started.add(command.job)
            case _:
                pass
        most = most_commands(len(self.jobs))
        if len(self.commands) >= most:
            raise CommandError(
                f"{name}: this answer may have at most {most} commands, for everything else waits until they are carried "
                "out; ask for the others in later up-calls"
            )
        self.commands.append(command)

    def _know_job(self, command: str, job: str) -> None:
        if job not in self.jobs and not self._made < _ordinal(job) <= self._made + self._created:
            raise CommandError(f"{command}: there is no job {job!r}; there are {len(self.jobs)} jobs")

    def _know_slot(self, command: str, slot: str) -> None:
        if slot not in self._granted:
            held = ", ".join(sorted(self.slots)) or "none"
            raise CommandError(f"{command}: the experiment does not hold slot {slot!r}; it holds {held}")


def _ordinal(job: str) -> int:
    return int(job) if job.isdecimal() else -1
