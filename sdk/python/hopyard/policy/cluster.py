"""What a policy sees and can ask for: the read-only view and the down-calls."""

from __future__ import annotations

import abc
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hopyard.policy.views import CommandError, CurvePoint, ExperimentView, Incumbent, JobView, MachineView
from hopyard.policy.vocabulary import (
    AmendRun,
    AnswerJob,
    Ask,
    BillRun,
    Command,
    CreateJob,
    Data,
    EndExperiment,
    ForkJob,
    Hyperparameters,
    JobState,
    KeepSnapshots,
    LabelJob,
    Predict,
    ReleaseMachine,
    ReserveMachine,
    RunMode,
    StartJob,
    SuspendJob,
    TerminateJob,
    WakeAt,
)


class Cluster(abc.ABC):
    """The view of one up-call and the collector of its down-calls.

    Views are of the moment of the up-call. `idle_machines`, `idle_jobs`, `reserve_idle_machine` and `get_idle_job` also take
    account of the commands already given in the same up-call, so a loop over them ends. Commands are proposals: the core
    checks each one against its own state when the answer arrives.
    """

    # ------------------------------------------------------------------------------------------------------------- view

    @property
    @abc.abstractmethod
    def now(self) -> float:
        """The core's time, seconds since the epoch. A policy has no other clock."""

    @property
    @abc.abstractmethod
    def rng(self) -> random.Random:
        """This up-call's source of chance, seeded from the experiment and the up-call's number. A policy has no other."""

    @property
    @abc.abstractmethod
    def experiment(self) -> ExperimentView:
        """The experiment's fixed and changing terms.

        Of a group all experiments together: its first one that is not over, with the jobs left of all that run and the
        largest max position.
        """

    @property
    def experiments(self) -> Mapping[str, ExperimentView]:
        """The experiments that this policy serves, by id, in the order in which they joined; those that are over too.

        More than one is a group: experiments with the same `share` key, which agree in policy, metric and unit.
        """
        return {self.experiment.id: self.experiment}

    @property
    @abc.abstractmethod
    def share(self) -> int:
        """Machines that the experiment may hold."""

    @property
    @abc.abstractmethod
    def jobs(self) -> Mapping[str, JobView]:
        """All jobs by id, in order of creation."""

    @property
    def earlier(self) -> Mapping[str, JobView]:
        """What earlier experiments have trained below the same root of the search plan, by "EXPERIMENT/JOB".

        It was looked up when the experiment was created. `curve` has their reports, and `answer_job` takes them as sources.
        `snapshots` says where `start_job` may start from them (`from_snapshot`): the results up to there are the job's own by
        that. Such snapshots may become fewer; an extension of an experiment that was over has none. Empty for policies
        without `shares`.
        """
        return {}

    @property
    def scaling(self) -> Mapping[str, Mapping[int, float]]:
        """What earlier experiments measured of the same training: the seconds of a unit, by hardware and number of machines.

        It was looked up when the experiment was created, and never changes. The same training is the same code, started in the
        same way with the same resources, on the same search space. Empty for policies without `scales`.
        """
        return {}

    @property
    @abc.abstractmethod
    def machines(self) -> Mapping[str, MachineView]:
        """All machines that the experiment holds, by id, in order of id."""

    @property
    def data(self) -> Data | None:
        """The experiment's partitioned data, and which nodes hold what now; None: it names none.

        `on_machines_change` is called whenever a node came to hold a partition or no longer does.
        """
        return None

    @abc.abstractmethod
    def idle_machines(self) -> Sequence[MachineView]:
        """Machines that run nothing and are neither reserved nor used by this answer, in order of id."""

    @abc.abstractmethod
    def idle_jobs(self) -> Sequence[JobView]:
        """Jobs of running experiments that wait for a machine and are not started by this answer.

        Highest priority first, then FIFO.
        """

    def waits(self, job: str) -> bool:
        """Whether a job is one of `idle_jobs`, without looking at each."""
        return any(idle.id == job for idle in self.idle_jobs())

    def count(self, *states: JobState) -> int:
        """How many jobs are in any of these states at the moment of the up-call, without looking at each."""
        return sum(job.state in states for job in self.jobs.values())

    def queued(self) -> int:
        """How many jobs are PENDING or SUSPENDED at the moment of the up-call, without looking at each.

        Only those of running experiments: in a group the others need no machine until they are resumed.
        """
        running = {name for name, terms in self.experiments.items() if terms.running}
        return sum(job.state.idle and job.experiment in running for job in self.jobs.values())

    def busy_machines(self) -> int:
        """How many machines have a run at the moment of the up-call, without looking at each."""
        return sum(len(job.machines) for job in self.live_jobs())

    def live_jobs(self) -> Sequence[JobView]:
        """Jobs with a run, in order of creation."""
        return [job for job in self.jobs.values() if job.state.live]

    def open_jobs(self) -> Sequence[JobView]:
        """Jobs that have not ended, in order of creation: what a policy looks at when thousands have."""
        return [job for job in self.jobs.values() if not job.state.ended]

    @abc.abstractmethod
    def curve(self, job: str) -> Sequence[CurvePoint]:
        """What a job reported so far, by position; a forked job's curve begins with its ancestor's prefix."""

    @abc.abstractmethod
    def snapshots(self, job: str) -> Sequence[int]:
        """Positions of the job's snapshots that a run can start from now, ascending."""

    @property
    @abc.abstractmethod
    def incumbent(self) -> Incumbent | None:
        """The best result so far; None before the first finite one."""

    # ------------------------------------------------------------------------------------------------------- down-calls

    @abc.abstractmethod
    def submit(self, command: Command) -> None:
        """Adds a command to the answer. Raises CommandError for one that can never be carried out."""

    @abc.abstractmethod
    def new_job_id(self) -> str:
        """The id that the next created job gets."""

    @abc.abstractmethod
    def new_ticket(self) -> str:
        """A ticket that no other question of this experiment has."""

    def reserve_idle_machine(self) -> str | None:
        """Takes an idle machine for this policy's use, and returns its id; None when there is none."""
        machine = next(iter(self.idle_machines()), None)
        if machine is None:
            return None
        self.submit(ReserveMachine(machine.id))
        return machine.id

    def release_machine(self, machine: str) -> None:
        """Makes a reserved machine idle again."""
        self.submit(ReleaseMachine(machine))

    def get_idle_job(self) -> str | None:
        """The idle job that comes next: highest priority, then first come; None when there is none."""
        job = next(iter(self.idle_jobs()), None)
        return job.id if job is not None else None

    def create_job(
        self, hyperparameters: Hyperparameters | None = None, *, experiment: str = "", limit: int | None = None
    ) -> str:
        """Makes a job and returns its id; `on_job_created` follows when it has its configuration and is idle.

        Args:
            hyperparameters: Its configuration; None: the generator proposes one.
            experiment: Which experiment of a group it is for; empty: the one that is furthest behind its weight.
            limit: Where it is complete (>= 1), if not where the experiment's jobs are; see `CreateJob`.
        """
        job = self.new_job_id()
        self.submit(CreateJob(job, hyperparameters, experiment, limit))
        return job

    def start_job(
        self,
        job: str,
        machines: str | Iterable[str],
        *,
        until: int | None = None,
        allowed: int | None = None,
        snapshot_at: Iterable[int] = (),
        inputs: Mapping[str, str] | None = None,
        mode: RunMode = RunMode.TRAIN,
        from_snapshot: tuple[str, int] | None = None,
        preemptible: bool = True,
        parts: int = 0,
    ) -> None:
        """Starts or resumes an idle job; see `StartJob` for what each argument promises."""
        gang = (machines,) if isinstance(machines, str) else tuple(machines)
        saves = tuple(sorted(set(snapshot_at)))
        given = dict(inputs or {})
        self.submit(StartJob(job, gang, until, allowed, saves, given, mode, from_snapshot, preemptible, parts))

    def resume_job(self, job: str, machines: str | Iterable[str], **options: Any) -> None:
        """`start_job` for a job that has a snapshot; raises CommandError if it has none."""
        if not self.snapshots(job):
            raise CommandError(f"resume_job: job {job!r} has no snapshot; use start_job")
        self.start_job(job, machines, **options)

    def amend_run(self, job: str, *, until: int | None = None, snapshot_at: Iterable[int] = ()) -> str:
        """Moves the end or adds save points of a run under way; `on_answer` brings accepted and position for the ticket."""
        ticket = self.new_ticket()
        self.submit(AmendRun(job, ticket, until, tuple(sorted(set(snapshot_at)))))
        return ticket

    def suspend_job(self, job: str) -> None:
        """Suspends a running job at its next boundary."""
        self.submit(SuspendJob(job))

    def terminate_job(self, job: str) -> None:
        """Ends a job: a running one at its next boundary, an idle one at once."""
        self.submit(TerminateJob(job))

    def fork_job(self, parent: str, position: int, hyperparameters: Hyperparameters, *, experiment: str = "") -> str:
        """Makes a job from another's snapshot, with other hyperparameters, and returns its id.

        Args:
            parent: Whose snapshot it starts from.
            position: Where.
            hyperparameters: Its own configuration.
            experiment: Which experiment of a group it is for; empty: the parent's.
        """
        job = self.new_job_id()
        self.submit(ForkJob(job, parent, position, hyperparameters, experiment))
        return job

    def answer_job(self, job: str, source: str, position: int, *, completes: bool = True) -> None:
        """Completes a job from another's results up to a position, without a run.

        Args:
            job: A waiting job.
            source: Whose results are its own, too.
            position: Up to where.
            completes: False: it has the results, and goes on waiting; a run that is to continue from there needs a snapshot.
        """
        self.submit(AnswerJob(job, source, position, completes))

    def label_job(self, job: str, priority: float) -> None:
        """Gives a job a priority; idle jobs are ordered by it, higher first."""
        self.submit(LabelJob(job, priority))

    def predict(self, job: str, *, target: float | None = None, horizon: int | None = None) -> str:
        """Asks for an extrapolation of a job's curve; `on_prediction` brings the result for the ticket, once.

        Args:
            job: Which job's. When it ends before the answer is there, the result is an error.
            target: The value whose chances are asked for; None: the experiment's target, and no chances if it has none.
            horizon: The last position of interest (>= 1); None: where the job would be complete.
        """
        ticket = self.new_ticket()
        given = {"target": target, "horizon": horizon}
        self.submit(Predict(ticket, job, {name: value for name, value in given.items() if value is not None}))
        return ticket

    def ask(self, kind: str, payload: Any = None, *, seconds: float = 60.0) -> str:
        """Asks a solver; `on_answer` brings its result, or an error, for the ticket.

        Args:
            kind: The solver's name (`hopyard plugins` lists them), or `module:Class`.
            payload: What it is told: plain data, which JSON can write.
            seconds: How long it may think (> 0, at most a day); it gets its own process, and the policy goes on meanwhile.
        """
        ticket = self.new_ticket()
        self.submit(Ask(ticket, kind, payload, seconds))
        return ticket

    def end_experiment(self, reason: str, *, winner: str = "", experiment: str = "") -> None:
        """Ends the experiment, as reaching its target does; every job but the winner is terminated.

        Args:
            reason: Why, in words: people see it as the reason of the experiment's end.
            winner: The job that it was all for: it is saved and completed. Empty: none.
            experiment: Which one of a group; empty: the winner's, or without a winner all of them.

        Raises:
            CommandError: There is no reason, or no such job.
        """
        if not reason.strip():
            raise CommandError("end_experiment: say why; the reason is what people see")
        self.submit(EndExperiment(reason, winner, experiment))

    def bill_run(self, job: str, wanted: Iterable[tuple[str, int]]) -> None:
        """Says which experiments of a group want what a job's run trains, each up to a position; see `BillRun`."""
        self.submit(BillRun(job, tuple(wanted)))

    def keep_snapshots(self, job: str, positions: Iterable[int]) -> None:
        """Says from which of a job's snapshots something may still start: the others may go; see `KeepSnapshots`."""
        self.submit(KeepSnapshots(job, tuple(sorted(set(positions)))))

    def wake_at(self, at: float) -> str:
        """Asks for `on_timer` at a time; returns the ticket it will carry."""
        ticket = self.new_ticket()
        self.submit(WakeAt(ticket, at))
        return ticket
