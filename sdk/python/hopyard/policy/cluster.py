"""The interface of a policy to the cluster: a read-only view of one moment, and the down-calls (commands)."""

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
    """What a policy gets at an up-call: a view of the experiment, and methods that add commands to the answer.

    The view shows the moment of the up-call. `idle_slots`, `idle_jobs`, `reserve_idle_machine` and `get_idle_job` also
    consider the commands given so far in the same up-call, so that a loop over them ends. Commands are proposals: the
    engine checks each one against its current state when the answer arrives, and reports a refused one to
    `Policy.on_refused`.
    """

    # ------------------------------------------------------------------------------------------------------------- view

    @property
    @abc.abstractmethod
    def now(self) -> float:
        """The time of the up-call by the engine's clock, in seconds since the Unix epoch. A policy must not use another clock."""

    @property
    @abc.abstractmethod
    def rng(self) -> random.Random:
        """The random generator of this up-call, seeded from the experiment and the up-call's number. A policy must use no other."""

    @property
    @abc.abstractmethod
    def experiment(self) -> ExperimentView:
        """What the policy knows about the experiment, such as its metric and the number of jobs that may still be created.

        For a group, this is the first experiment, in the order in which they joined, that has not ended (the first of all
        if all have ended), but with the sum of the `jobs_left` of all running experiments and their largest `max_position`.
        """

    @property
    def experiments(self) -> Mapping[str, ExperimentView]:
        """The experiments that this policy serves, by id, in the order in which they joined, including those that have ended.

        Several experiments form a group: they have the same `share` key, and the same policy, metric and unit.
        """
        return {self.experiment.id: self.experiment}

    @property
    @abc.abstractmethod
    def share(self) -> int:
        """The number of slots that the experiment (or the group) may hold."""

    @property
    @abc.abstractmethod
    def jobs(self) -> Mapping[str, JobView]:
        """All jobs by id, in order of creation."""

    @property
    def earlier(self) -> Mapping[str, JobView]:
        """Trainings of earlier experiments with the same root in the search plan (`ExperimentView.plan`), by "EXPERIMENT/JOB".

        They are determined when the experiment is created. `curve` returns their reports, and `answer_job` accepts them
        as sources. `snapshots` returns the positions from which `start_job` can start (`from_snapshot`); the job then
        gets the results up to that position. Snapshots may be deleted later, and an experiment that is extended after
        its end has none. Empty for policies without `shares`.
        """
        return {}

    @property
    def scaling(self) -> Mapping[str, Mapping[int, float]]:
        """Earlier measurements of the same training: seconds per unit, by kind of host (`SlotView.hardware`) and number of slots.

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
        """The experiment's partitioned data and the nodes that have each partition now; None if the experiment names no data.

        `on_slots_change` is called whenever a node gets or loses a partition.
        """
        return None

    @abc.abstractmethod
    def idle_slots(self) -> Sequence[SlotView]:
        """Return the slots that have no run and are neither reserved nor used by a command of this answer, ordered by id."""

    @abc.abstractmethod
    def idle_jobs(self) -> Sequence[JobView]:
        """Return the jobs of running experiments that wait for a slot, without those that a command of this answer starts or ends.

        They are ordered by priority, highest first, then by the time since which they wait (FIFO).
        """

    def waits(self, job: str) -> bool:
        """Return whether the job with this id is in `idle_jobs`, without iterating over all idle jobs; False for an unknown id."""
        return any(idle.id == job for idle in self.idle_jobs())

    def backs_off(self, job: str) -> bool:
        """Return whether a PENDING or SUSPENDED job may not start yet, because its last runs were lost or failed.

        It is not in `idle_jobs` until its backoff is over. The slots that it had are idle, so other jobs can use them, and `demand`
        should not count it. False for a job of a paused experiment, and for an unknown id.
        """
        return False

    def count(self, *states: JobState) -> int:
        """Return how many jobs are in any of the given states at the moment of the up-call. It is faster than a loop over `jobs`."""
        return sum(job.state in states for job in self.jobs.values())

    def queued(self) -> int:
        """Return how many jobs wait for a slot at the moment of the up-call; useful for `demand`.

        They are the jobs of `idle_jobs`, including those that a command of this answer starts or ends. PENDING and SUSPENDED jobs of
        paused experiments of a group, and those in backoff after losses or failures, are not included, because they need no slot now.
        """
        running = {name for name, terms in self.experiments.items() if terms.running}
        return sum(
            job.state.idle and job.experiment in running and not self.backs_off(job.id) for job in self.jobs.values()
        )

    def busy_slots(self) -> int:
        """Return how many slots have a run at the moment of the up-call. It is faster than a loop over `slots`."""
        return sum(len(job.slots) for job in self.live_jobs())

    def live_jobs(self) -> Sequence[JobView]:
        """Return the jobs that have a run, in order of creation."""
        return [job for job in self.jobs.values() if job.state.live]

    def open_jobs(self) -> Sequence[JobView]:
        """Return the jobs that have not ended, in order of creation. It is faster than a loop over `jobs`, which has all ended ones."""
        return [job for job in self.jobs.values() if not job.state.ended]

    @abc.abstractmethod
    def curve(self, job: str) -> Sequence[CurvePoint]:
        """Return a job's reports by position, ascending; empty: none yet. The curve of a forked job begins with that of its parent.

        Args:
            job: The id of a job, or "EXPERIMENT/JOB" from `earlier`.

        Raises:
            CommandError: There is no such job.
        """

    def ratings(self, job: str) -> dict[int, float]:
        """Return the rated values (`ExperimentView.rated`) of a job's reports by position, ascending; empty: none yet.

        Larger is better in both modes, and values that are not finite are minus infinity. Reports without the metric are left out.
        Use these values to compare jobs with each other.

        Args:
            job: The id of a job, or "EXPERIMENT/JOB" from `earlier`.

        Raises:
            CommandError: There is no such job.
        """
        terms = self.experiment
        points = self.curve(job)
        return {at.position: terms.rated(at.metrics[terms.metric]) for at in points if terms.metric in at.metrics}

    @abc.abstractmethod
    def snapshots(self, job: str) -> Sequence[int]:
        """Return the positions of the job's snapshots from which a run can start now, ascending; empty: there is none.

        Args:
            job: The id of a job, or "EXPERIMENT/JOB" from `earlier`.

        Raises:
            CommandError: There is no such job.
        """

    @property
    @abc.abstractmethod
    def incumbent(self) -> Incumbent | None:
        """The best finite result of all jobs so far; None before the first finite result."""

    # ------------------------------------------------------------------------------------------------------- down-calls

    @abc.abstractmethod
    def submit(self, command: Command) -> None:
        """Add a command to the answer.

        Raises:
            CommandError: The command can never be carried out (it names an unknown job or slot), or the answer already
                has the maximum number of commands: 10,000, and two more for each job of the experiment.
        """

    @abc.abstractmethod
    def new_job_id(self) -> str:
        """Reserve the id of the next job to be created, and return it."""

    @abc.abstractmethod
    def new_ticket(self) -> str:
        """Return a new ticket: a text that identifies one request of this experiment and its answer."""

    def reserve_idle_machine(self) -> str | None:
        """Reserve the first slot of `idle_slots` for this policy and return its id, or None if no slot is idle.

        The slot is no longer in `idle_slots`; `start_job` can use it.
        """
        slot = next(iter(self.idle_slots()), None)
        if slot is None:
            return None
        self.submit(ReserveSlot(slot.id))
        return slot.id

    def release_machine(self, slot: str) -> None:
        """Make a reserved slot idle again. If it has a run, the command is refused later (`on_refused`).

        Args:
            slot: The slot's id.

        Raises:
            CommandError: The experiment does not hold this slot.
        """
        self.submit(ReleaseSlot(slot))

    def get_idle_job(self) -> str | None:
        """Return the id of the first job in `idle_jobs`, or None if there is none."""
        job = next(iter(self.idle_jobs()), None)
        return job.id if job is not None else None

    def create_job(
        self, hyperparameters: Hyperparameters | None = None, *, experiment: str = "", limit: int | None = None
    ) -> str:
        """Create a job and return its id. `on_job_created` is called when it has its configuration and is idle.

        Args:
            hyperparameters: The job's configuration; None: the generator proposes one.
            experiment: In a group, the id of the job's experiment; empty: the running one with the fewest jobs
                relative to its weight (`ExperimentView.weight`); with a `limit`, the first experiment of the group.
            limit: The position (>= 1) at which the job is complete, if it differs from the experiment's; only with
                `hyperparameters`. The job is then not one of the experiment's allowed number of jobs.

        Returns:
            The id of the new job. If the engine refuses the command (`on_refused`), the job does not exist.
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
        """Start or resume an idle job on one slot, or on several slots as a gang.

        Args:
            job: The id of an idle job.
            slots: The id of an idle or reserved slot, or those of a gang; rank 0 of the gang gets the first, and so on.
            until: The position to which the run trains. It then waits in memory for a decision. None: the position at
                which jobs of its experiment are complete.
            allowed: Reports below this position need no decision, and training does not wait there; None: every report
                needs one.
            snapshot_at: Positions at which the run saves and continues.
            inputs: The name of an input partition for each slot id; None: the run gets no partition.
            mode: Whether the run trains, evaluates a snapshot, or measures the time of an iteration.
            from_snapshot: The snapshot from which the run starts: (job, position); None: the job's newest snapshot, or the
                beginning if it has none.
            preemptible: If False, the run keeps its slots up to `until` even if the share decreases.
            parts: With the mode EVALUATE, the number of runs among which the evaluation is divided, each on one partition;
                their metrics are combined when all have reported. 0: only this run evaluates.

        Raises:
            CommandError: There is no such job or slot. If the job is not idle, or a slot is neither idle nor reserved, the command is
                refused later (`on_refused`).
        """
        gang = (slots,) if isinstance(slots, str) else tuple(slots)
        saves = tuple(sorted(set(snapshot_at)))
        given = dict(inputs or {})
        self.submit(StartJob(job, gang, until, allowed, saves, given, mode, from_snapshot, preemptible, parts))

    def resume_job(self, job: str, slots: str | Iterable[str], **options: Any) -> None:
        """Call `start_job` for a job that must have a snapshot.

        Args:
            job: The job's id.
            slots: The slot, or the slots of a gang.
            **options: The other arguments of `start_job`.

        Raises:
            CommandError: The job has no snapshot, or there is no such slot.
        """
        if not self.snapshots(job):
            raise CommandError(f"resume_job: job {job!r} has no snapshot; use start_job")
        self.start_job(job, slots, **options)

    def amend_run(self, job: str, *, until: int | None = None, snapshot_at: Iterable[int] = ()) -> str:
        """Change a job's current run: move its `until` position, or add positions at which it saves.

        The answer comes with `on_answer` and is a mapping: `accepted` says whether the run applies the change; if not, such
        as because the run has passed one of the positions, nothing changes. `position` is the position of the run or, if the change
        is not accepted, the position that new ones must exceed.

        Args:
            job: The id of a job with a run.
            until: The new `until` position; None: unchanged.
            snapshot_at: Additional positions at which the run saves and continues.

        Returns:
            The ticket of the answer.

        Raises:
            CommandError: There is no such job. If the job has no run, the command is refused later (`on_refused`).
        """
        ticket = self.new_ticket()
        self.submit(AmendRun(job, ticket, until, tuple(sorted(set(snapshot_at)))))
        return ticket

    def suspend_job(self, job: str) -> None:
        """Suspend the job with the id `job` at the next boundary of its run: it saves its state and releases its slots.

        Raises:
            CommandError: There is no such job. If the job has no run, the command is refused later (`on_refused`).
        """
        self.submit(SuspendJob(job))

    def terminate_job(self, job: str) -> None:
        """End the job with the id `job` for good: a running one at its next boundary, an idle one at once. It is not saved.

        If the job has already ended, the command has no effect.

        Raises:
            CommandError: There is no such job.
        """
        self.submit(TerminateJob(job))

    def fork_job(self, parent: str, position: int, hyperparameters: Hyperparameters, *, experiment: str = "") -> str:
        """Create a job that starts from another job's snapshot, with other hyperparameters, and return its id.

        Args:
            parent: The id of the job with the snapshot.
            position: The position of the snapshot.
            hyperparameters: The configuration of the new job.
            experiment: In a group, the id of the new job's experiment; empty: the parent's.

        Raises:
            CommandError: There is no job `parent`. If it has no usable snapshot at `position`, the command is refused later
                (`on_refused`).
        """
        job = self.new_job_id()
        self.submit(ForkJob(job, parent, position, hyperparameters, experiment))
        return job

    def answer_job(self, job: str, source: str, position: int, *, completes: bool = True) -> None:
        """Give a job the results of another job up to a position, without a run.

        Args:
            job: The id of an idle job.
            source: The id of the job with the results, or "EXPERIMENT/JOB" from `earlier`.
            position: The last position of the results that the job gets.
            completes: Whether the job is then complete. If False, it gets the results and continues to wait; a run that
                continues from `position` needs a snapshot there.

        Raises:
            CommandError: There is no such job or source. If the job has a run or has ended, or the source has not reported up
                to `position`, the command is refused later (`on_refused`).
        """
        self.submit(AnswerJob(job, source, position, completes))

    def label_job(self, job: str, priority: float) -> None:
        """Set the priority of the job with the id `job`. Idle jobs are ordered by priority, highest first; the default is 0.

        Raises:
            CommandError: There is no such job. If the priority is NaN, the command is refused later (`on_refused`).
        """
        self.submit(LabelJob(job, priority))

    def predict(self, job: str, *, target: float | None = None, horizon: int | None = None) -> str:
        """Request an extrapolation of a job's curve. `on_prediction` gets the result or an error, exactly once.

        Args:
            job: The id of a job that has not ended. If it ends before the answer, the result is an error.
            target: The prediction contains the probability that the metric is at least as good as this value; None: the
                experiment's target, or no probability if it has none.
            horizon: The last position of the extrapolation (>= 1); None: where the job would be complete.

        Returns:
            The ticket of the answer.

        Raises:
            CommandError: There is no such job. If it has ended, or an argument is invalid, the command is refused later
                (`on_refused`), and there is no answer.
        """
        ticket = self.new_ticket()
        given = {"target": target, "horizon": horizon}
        self.submit(Predict(ticket, job, {name: value for name, value in given.items() if value is not None}))
        return ticket

    def ask(self, kind: str, payload: Any = None, *, seconds: float = 60.0) -> str:
        """Send a request to a solver (`hopyard.solver`). `on_answer` gets the result or an error, exactly once.

        Args:
            kind: The solver's name (`hopyard plugins` lists them), or `module:Class`.
            payload: The input of the solver: plain data that can be written as JSON.
            seconds: Time limit in seconds (> 0, at most a day). The solver runs in a separate process, and the policy
                continues meanwhile.

        Returns:
            The ticket of the answer. If `kind` is empty or `seconds` is out of range, the command is refused
            (`on_refused`), and there is no answer.
        """
        ticket = self.new_ticket()
        self.submit(Ask(ticket, kind, payload, seconds))
        return ticket

    def end_experiment(self, reason: str, *, winner: str = "", experiment: str = "") -> None:
        """End the experiment as if its target were reached. All jobs except the winner are terminated.

        Args:
            reason: The reason, a sentence for users.
            winner: The id of the best job, which is saved and completed; empty: none.
            experiment: In a group, the id of the experiment to end; empty: the winner's, or without a winner all of
                them.

        Raises:
            CommandError: The reason is empty, or there is no such job.
        """
        if not reason.strip():
            raise CommandError("end_experiment: say why; the reason is what people see")
        self.submit(EndExperiment(reason, winner, experiment))

    def bill_run(self, job: str, wanted: Iterable[tuple[str, int]]) -> None:
        """Declare which experiments of a group need the results of a job's run. They share its slot time in equal parts.

        Args:
            job: The id of a job with a run.
            wanted: The ids of the experiments, each with the last position that it needs.

        Raises:
            CommandError: There is no such job. If it has no run, or the group has no such experiment, the command is refused
                later (`on_refused`).
        """
        self.submit(BillRun(job, tuple(wanted)))

    def keep_snapshots(self, job: str, positions: Iterable[int]) -> None:
        """Declare from which snapshots of a job a run may still start. The others may be deleted.

        Each call for a job replaces the earlier ones (`KeepSnapshots` describes the exceptions).

        Args:
            job: The id of the job.
            positions: The positions of the snapshots to keep; empty: none.

        Raises:
            CommandError: There is no such job.
        """
        self.submit(KeepSnapshots(job, tuple(sorted(set(positions)))))

    def wake_at(self, at: float) -> str:
        """Request a call of `on_timer` at the time `at` (seconds since the Unix epoch, by the engine's clock).

        A time in the past is reached at once. A time that is not finite is refused (`on_refused`).

        Returns:
            The ticket of the timer, which `on_timer` gets.
        """
        ticket = self.new_ticket()
        self.submit(WakeAt(ticket, at))
        return ticket
