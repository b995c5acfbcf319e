"""A policy that repeats recorded training: the same parts of runs, from the same snapshots, in the same order.

See `chains` for the terms chain and stretch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hopyard.policy import Cluster, JobCreated, JobState, Policy, RunEnd, RunEndReason, RunMode, Verdict
from hopyard.policy.vocabulary import CreateJob, ForkJob


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run that the policy must make.

    Attributes:
        order: Sort key: of the runs that can start, the one with the lowest key is started first.
        start: The position from which it starts.
        end: The position at which it ends; equal to `start` for an evaluation.
        saves: Positions between start and end at which it saves a snapshot.
        inputs: The input (data partition) of each rank; an empty text: the rank has none.
        parts: For an evaluation of one data partition: the number of partitions that are evaluated in total; 0: unknown,
            or the run is no such evaluation.
    """

    order: int
    start: int
    end: int
    saves: tuple[int, ...]
    inputs: tuple[str, ...]
    parts: int = 0


class ChainProgress:
    """The progress of one chain: a sequence of recorded runs, which one job repeats.

    The position of the job determines the next run, also after the loss of a run.

    Args:
        number: The number of the chain.
        plain: The chain, as `chains.TrainingChain.plain` returns it.

    Attributes:
        job: The id of the job that repeats the chain; empty: not created yet.
        evaluating: The running evaluation; None: none.
        trained: True if the training is complete, even if the program saved no snapshot at its last position.
    """

    def __init__(self, number: int, plain: Mapping[str, Any]) -> None:
        self.number = number
        self.hyperparameters: Mapping[str, Any] = plain["hyperparameters"]
        self.origin: tuple[int, int] | None = tuple(plain["origin"]) if plain["origin"] is not None else None
        self.stretches = [
            PlannedRun(order, start, end, tuple(saves), tuple(inputs))
            for order, start, end, saves, inputs in plain["stretches"]
        ]
        self.evaluations = [
            PlannedRun(order, start, start, (), tuple(inputs), parts)
            for order, start, parts, inputs in plain["evaluations"]
        ]
        self.job = ""
        self.evaluating: PlannedRun | None = None
        self.trained = False  # True after the last stretch, even if the program saved no snapshot.

    @property
    def first(self) -> PlannedRun:
        """The run of the chain that was recorded first: its first training run or its first evaluation. A chain has one run or more."""
        return min([*self.stretches[:1], *self.evaluations[:1]], key=lambda step: step.order)

    def next(self, position: int) -> PlannedRun | None:
        """Return the next run of the chain's job when the job is at a position.

        An evaluation at this position comes before further training.

        Returns:
            The run; None: neither an evaluation nor training of the chain is left at this position.
        """
        due = next((step for step in self.evaluations if step.start == position), None)
        if due is not None or self.trained:
            return due
        return next((step for step in self.stretches if step.start <= position < step.end), None)


class RecordedPolicy(Policy):
    """A policy that repeats chains: sequences of recorded runs, each started from a snapshot of the preceding run.

    It sets the priority of the job that repeats a chain to the negated number of the chain, so that the journal
    associates the results with the chain.

    Args:
        plan: Path of a JSON file with a list of chains, as `chains.TrainingChain.plain` returns them.
    """

    forks = True
    ship_every = 0

    def __init__(self, plan: str) -> None:
        read: Sequence[Mapping[str, Any]] = json.loads(Path(plan).read_text(encoding="utf-8"))
        self._chains = [ChainProgress(number, plain) for number, plain in enumerate(read)]
        steps = [step for chain in self._chains for step in (*chain.stretches, *chain.evaluations)]
        self.needs_data = any(any(step.inputs) for step in steps)  # A rank without an input has an empty one.
        self._by_job: dict[str, ChainProgress] = {}
        self._unborn = [chain for chain in self._chains if chain.origin is not None]
        self._gang = max((len(step.inputs) for step in steps), default=1)

    def allocate_jobs(self, cluster: Cluster) -> None:
        """Create a job for each chain (a sequence of recorded runs), and start the next runs in the recorded order on idle slots.

        The job of a chain that starts from a snapshot of another chain is forked as soon as this snapshot exists. The
        experiment ends when no run is active and none can be made.
        """
        if not self._fork(cluster) and not self._goes_on(cluster):
            cluster.end_experiment("everything was trained again that can be")
            return
        ready: list[tuple[PlannedRun, ChainProgress]] = [
            (chain.first, chain) for chain in self._chains if not chain.job and chain.origin is None
        ]
        for job in cluster.idle_jobs():
            chain = self._by_job[job.id]
            step = chain.next(job.position)
            if step is not None:
                ready.append((step, chain))
            elif not any(child.origin is not None and child.origin[0] == chain.number for child in self._unborn):
                cluster.terminate_job(job.id)
        slots = [slot.id for slot in cluster.idle_slots()]
        coming = cluster.count(JobState.CREATING)
        for step, chain in sorted(ready, key=lambda each: each[0].order):
            taken, slots = slots[: len(step.inputs)], slots[len(step.inputs) :]
            if len(taken) < len(step.inputs):
                return  # A later run must not overtake a gang.
            if chain.job:
                self._start(cluster, chain, step, taken)
            elif coming:
                coming -= 1
            else:
                self._born(chain, cluster.create_job(chain.hyperparameters))

    def on_job_created(self, cluster: Cluster, created: JobCreated) -> None:
        """Set the priority of a new job to the negated number of the chain (the sequence of recorded runs) that it repeats."""
        cluster.label_job(created.job, -self._by_job[created.job].number)

    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        """Record that a run has ended. A run that reached its planned end is not repeated.

        After another end, such as the loss of its node, it is due again and `allocate_jobs` repeats it.
        """
        chain = self._by_job[run.job]
        if run.mode is RunMode.TRAIN and run.reason is RunEndReason.UNTIL:
            chain.trained = run.position >= chain.stretches[-1].end
        if run.mode is RunMode.EVALUATE and chain.evaluating is not None:
            if run.reason is RunEndReason.UNTIL:
                chain.evaluations.remove(chain.evaluating)
            chain.evaluating = None

    def on_refused(self, cluster: Cluster, verdict: Verdict) -> None:
        """After a refused creation or fork of a job, mark its chain as not started, so that it is tried again later.

        The chain is the sequence of recorded runs that the job was to repeat.
        """
        if isinstance(verdict.command, CreateJob | ForkJob):
            chain = self._by_job.pop(verdict.command.job)
            chain.job = ""
            if chain.origin is not None:
                self._unborn.append(chain)

    def gang(self, cluster: Cluster) -> int:
        """Return the largest number of slots that one of the recorded runs needs; 1 if there are no runs."""
        return self._gang

    def _goes_on(self, cluster: Cluster) -> bool:
        """Return True if a run is active or can still be made."""
        return any(not chain.job and chain.origin is None for chain in self._chains) or any(
            job.state.live or self._by_job[job.id].next(job.position) is not None for job in cluster.open_jobs()
        )

    def _fork(self, cluster: Cluster) -> bool:
        """Fork a job for each chain whose origin (a snapshot of another chain) is saved. Return True if a job was forked.

        A chain is a sequence of recorded runs that one job repeats.
        """
        before = len(self._unborn)
        for chain in list(self._unborn):
            assert chain.origin is not None
            number, position = chain.origin
            parent = self._chains[number].job
            if parent in cluster.jobs and position in cluster.snapshots(parent):
                self._unborn.remove(chain)
                self._born(chain, cluster.fork_job(parent, position, chain.hyperparameters))
        return len(self._unborn) < before

    def _born(self, chain: ChainProgress, job: str) -> None:
        chain.job = job
        self._by_job[job] = chain

    def _start(self, cluster: Cluster, chain: ChainProgress, step: PlannedRun, slots: Sequence[str]) -> None:
        inputs = {slot: name for slot, name in zip(slots, step.inputs, strict=True) if name}
        if step.end == step.start:
            chain.evaluating = step
            cluster.start_job(chain.job, slots, mode=RunMode.EVALUATE, inputs=inputs, parts=step.parts)
            return
        cluster.start_job(
            chain.job,
            slots,
            until=step.end,
            allowed=step.end,
            snapshot_at=[save for save in step.saves if save > cluster.jobs[chain.job].position],
            inputs=inputs,
            preemptible=False,
        )
