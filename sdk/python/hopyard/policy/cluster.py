"""The interface between a policy and the cluster: a read-only view and the down-calls."""

from __future__ import annotations

import abc
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hopyard.policy.views import CommandError, CurvePoint, ExperimentView, Incumbent, JobView, SlotView
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
    ReleaseSlot,
    ReserveSlot,
    RunMode,
    StartJob,
    SuspendJob,
    TerminateJob,
    WakeAt,
)


class Cluster(abc.ABC):
    """The view of one up-call, which also collects the commands of its answer.

    The view shows the moment of the up-call. `idle_slots`, `idle_jobs`, `reserve_idle_machine` and `get_idle_job`
    also consider the commands given so far in the same up-call, so that a loop over them ends. Commands are proposals:
    the core checks each one against its current state when the answer arrives.
    """

    # ------------------------------------------------------------------------------------------------------------- view

    @property
    @abc.abstractmethod
    def now(self) -> float:
        """The core's time in seconds since the epoch. A policy must not use another clock."""

    @property
    @abc.abstractmethod
    def rng(self) -> random.Random:
        """The random generator of this up-call, seeded from the experiment and the up-call's number. Use no other."""

    @property
    @abc.abstractmethod
    def experiment(self) -> ExperimentView:
        """The fixed and changing terms of the experiment.

        For a group, this is the first experiment that is not over, with the sum of the jobs left in all running
        experiments and the largest max position.
        """

    @property
    def experiments(self) -> Mapping[str, ExperimentView]:
        """The experiments that this policy serves, by id, in the order in which they joined, including those that are over.

        Several experiments form a group: they have the same `share` key, and the same policy, metric and unit.
        """
        return {self.experiment.id: self.experiment}

    @property
    @abc.abstractmethod
    def share(self) -> int:
        """Number of slots that the experiment may hold."""

    @property
    @abc.abstractmethod
    def jobs(self) -> Mapping[str, JobView]:
        """All jobs by id, in order of creation."""

    @property
    def earlier(self) -> Mapping[str, JobView]:
        """Trials of earlier experiments with the same root in the search plan, by "EXPERIMENT/JOB".

        They are determined when the experiment is created. `curve` returns their reports, and `answer_job` accepts them
        as sources. `snapshots` returns where `start_job` can start from them (`from_snapshot`); the job then takes over
        the results up to that position. These snapshots can become fewer, and an experiment that is extended after its
        end has none. Empty for policies without `shares`.
        """
        return {}

    @property
    def scaling(self) -> Mapping[str, Mapping[int, float]]:
        """Earlier measurements of the same training: seconds per unit, by hardware and number of slots.

        They are determined when the experiment is created, and never change. The same training means the same code,
        started in the same way with the same resources, on the same search space. Empty for policies without `scales`.
        """
        return {}

    @property
    @abc.abstractmethod
    def slots(self) -> Mapping[str, SlotView]:
        """All slots that the experiment holds, by id, ordered by id."""

    @property
    def data(self) -> Data | None:
        """The experiment's partitioned data and the nodes that hold it now, or None if the experiment names no data.

        `on_slots_change` is called whenever a node starts or stops holding a partition.
        """
        return None

    @abc.abstractmethod
    def idle_slots(self) -> Sequence[SlotView]:
        """Return the slots that have no run and are neither reserved nor used by this answer, ordered by id."""

    @abc.abstractmethod
    def idle_jobs(self) -> Sequence[JobView]:
        """Return the jobs of running experiments that wait for a slot and are not started by this answer.

        They are ordered by priority, highest first, then FIFO.
        """

    def waits(self, job: str) -> bool:
        """Return whether a job is in `idle_jobs`, without iterating over it."""
        return any(idle.id == job for idle in self.idle_jobs())

    def count(self, *states: JobState) -> int:
        """Return how many jobs are in any of these states at the moment of the up-call. Faster than iterating over the jobs."""
        return sum(job.state in states for job in self.jobs.values())

    def queued(self) -> int:
        """Return how many jobs of running experiments are PENDING or SUSPENDED at the moment of the up-call.

        Jobs of other experiments in a group need no slot until their experiment is resumed.
        """
        running = {name for name, terms in self.experiments.items() if terms.running}
        return sum(job.state.idle and job.experiment in running for job in self.jobs.values())

    def busy_slots(self) -> int:
        """Return how many slots have a run at the moment of the up-call. Faster than iterating over the slots."""
        return sum(len(job.slots) for job in self.live_jobs())

    def live_jobs(self) -> Sequence[JobView]:
        """Return the jobs with a run, in order of creation."""
        return [job for job in self.jobs.values() if job.state.live]

    def open_jobs(self) -> Sequence[JobView]:
        """Return the jobs that have not ended, in order of creation. Use it to avoid iterating over thousands of ended jobs."""
        return [job for job in self.jobs.values() if not job.state.ended]

    @abc.abstractmethod
    def curve(self, job: str) -> Sequence[CurvePoint]:
        """Return a job's reports by position. The curve of a forked job begins with the curve of its parent."""

    @abc.abstractmethod
    def snapshots(self, job: str) -> Sequence[int]:
        """Return the positions of the job's snapshots from which a run can start now, ascending."""

    @property
    @abc.abstractmethod
    def incumbent(self) -> Incumbent | None:
        """The best result so far; None before the first finite one."""

    # ------------------------------------------------------------------------------------------------------- down-calls

    @abc.abstractmethod
    def submit(self, command: Command) -> None:
        """Add a command to the answer. Raises CommandError for a command that can never be carried out."""

    @abc.abstractmethod
    def new_job_id(self) -> str:
        """Return the id of the next job to be created."""

    @abc.abstractmethod
    def new_ticket(self) -> str:
        """Return a ticket that no other question of this experiment has."""

    def reserve_idle_machine(self) -> str | None:
        """Reserve an idle slot for this policy and return its id, or None if there is none."""
        slot = next(iter(self.idle_slots()), None)
        if slot is None:
            return None
        self.submit(ReserveSlot(slot.id))
        return slot.id

    def release_machine(self, slot: str) -> None:
        """Make a reserved slot idle again."""
        self.submit(ReleaseSlot(slot))

    def get_idle_job(self) -> str | None:
        """Return the next idle job by priority, then FIFO, or None if there is none."""
        job = next(iter(self.idle_jobs()), None)
        return job.id if job is not None else None

    def create_job(
        self, hyperparameters: Hyperparameters | None = None, *, experiment: str = "", limit: int | None = None
    ) -> str:
        """Create a job and return its id. `on_job_created` is called when it has its configuration and is idle.

        Args:
            hyperparameters: Its configuration; None: the generator proposes one.
            experiment: Its experiment in a group; empty: the one that is furthest behind its weight.
            limit: The position (>= 1) at which it is complete, if it differs from the experiment's. See `CreateJob`.
        """
        job = self.new_job_id()
        self.submit(CreateJob(job, hyperparameters, experiment, limit))
        return job

    def start_job(
        self,
        job: str,
        slots: str | Iterable[str],
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
        """Start or resume an idle job. `StartJob` describes the arguments."""
        gang = (slots,) if isinstance(slots, str) else tuple(slots)
        saves = tuple(sorted(set(snapshot_at)))
        given = dict(inputs or {})
        self.submit(StartJob(job, gang, until, allowed, saves, given, mode, from_snapshot, preemptible, parts))

    def resume_job(self, job: str, slots: str | Iterable[str], **options: Any) -> None:
        """Call `start_job` for a job that has a snapshot. Raises CommandError if it has none."""
        if not self.snapshots(job):
            raise CommandError(f"resume_job: job {job!r} has no snapshot; use start_job")
        self.start_job(job, slots, **options)

    def amend_run(self, job: str, *, until: int | None = None, snapshot_at: Iterable[int] = ()) -> str:
        """Move the end of a current run, or add save points. Return the ticket of the answer.

        `on_answer` then gets the fields `accepted` and `position`.
        """
        ticket = self.new_ticket()
        self.submit(AmendRun(job, ticket, until, tuple(sorted(set(snapshot_at)))))
        return ticket

    def suspend_job(self, job: str) -> None:
        """Suspend a running job at its next boundary."""
        self.submit(SuspendJob(job))

    def terminate_job(self, job: str) -> None:
        """End a job: a running one at its next boundary, an idle one at once."""
        self.submit(TerminateJob(job))

    def fork_job(self, parent: str, position: int, hyperparameters: Hyperparameters, *, experiment: str = "") -> str:
        """Create a job from another job's snapshot, with other hyperparameters, and return its id.

        Args:
            parent: The job whose snapshot it starts from.
            position: The position of the snapshot.
            hyperparameters: The configuration of the new job.
            experiment: Its experiment in a group; empty: the parent's.
        """
        job = self.new_job_id()
        self.submit(ForkJob(job, parent, position, hyperparameters, experiment))
        return job

    def answer_job(self, job: str, source: str, position: int, *, completes: bool = True) -> None:
        """Give a job the results of another one up to a position, without a run.

        Args:
            job: A waiting job.
            source: The job with the results.
            position: The last position of the results.
            completes: Whether the job is then complete. If False, it gets the results and continues to wait. A run that
                continues from there needs a snapshot.
        """
        self.submit(AnswerJob(job, source, position, completes))

    def label_job(self, job: str, priority: float) -> None:
        """Set the priority of a job. Idle jobs are ordered by priority, highest first."""
        self.submit(LabelJob(job, priority))

    def predict(self, job: str, *, target: float | None = None, horizon: int | None = None) -> str:
        """Ask for an extrapolation of a job's curve. Return the ticket; `on_prediction` gets the result once.

        Args:
            job: The job. If it ends before the answer, the result is an error.
            target: The value whose probability is computed; None: the experiment's target, or no probability if it has
                none.
            horizon: The last position of interest (>= 1); None: where the job would be complete.
        """
        ticket = self.new_ticket()
        given = {"target": target, "horizon": horizon}
        self.submit(Predict(ticket, job, {name: value for name, value in given.items() if value is not None}))
        return ticket

    def ask(self, kind: str, payload: Any = None, *, seconds: float = 60.0) -> str:
        """Ask a solver. Return the ticket; `on_answer` gets the result or an error.

        Args:
            kind: The solver's name (`hopyard plugins` lists them), or `module:Class`.
            payload: The input of the solver: plain data that can be written as JSON.
            seconds: Time limit (> 0, at most a day). The solver runs in a separate process, and the policy continues
                meanwhile.
        """
        ticket = self.new_ticket()
        self.submit(Ask(ticket, kind, payload, seconds))
        return ticket

    def end_experiment(self, reason: str, *, winner: str = "", experiment: str = "") -> None:
        """End the experiment as if its target were reached. All jobs except the winner are terminated.

        Args:
            reason: The reason, which users see.
            winner: The best job, which is saved and completed. Empty: none.
            experiment: The experiment in a group; empty: the winner's, or without a winner all of them.

        Raises:
            CommandError: There is no reason, or no such job.
        """
        if not reason.strip():
            raise CommandError("end_experiment: say why; the reason is what people see")
        self.submit(EndExperiment(reason, winner, experiment))

    def bill_run(self, job: str, wanted: Iterable[tuple[str, int]]) -> None:
        """Declare which experiments of a group need the results of a job's run, each up to a position. See `BillRun`."""
        self.submit(BillRun(job, tuple(wanted)))

    def keep_snapshots(self, job: str, positions: Iterable[int]) -> None:
        """Declare from which snapshots of a job a run may still start. The others may be deleted. See `KeepSnapshots`."""
        self.submit(KeepSnapshots(job, tuple(sorted(set(positions)))))

    def wake_at(self, at: float) -> str:
        """Request a call of `on_timer` at a time, and return its ticket."""
        ticket = self.new_ticket()
        self.submit(WakeAt(ticket, at))
        return ticket
