"""The jobs, runs and slots of the virtual cluster, and the types with which a test describes training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from hopyard.policy.views import CurvePoint, JobView, SlotView
from hopyard.policy.vocabulary import (
    Hyperparameters,
    Metrics,
    RunEndReason,
    RunMode,
    StartJob,
)


@dataclass(frozen=True)
class VirtualStep:
    """One iteration of a job in the virtual cluster, as a test describes it.

    Attributes:
        metrics: The metrics that the job reports at its end.
        seconds: The duration in virtual seconds.
        finished: Whether the training process has nothing left to train after this iteration.
        examples: In an evaluation that is divided among several runs, the number of examples behind the metrics; their weight
            in the mean.
    """

    metrics: Metrics
    seconds: float = 1.0
    finished: bool = False
    examples: int = 0


class TrainingFailed(Exception):
    """Raised by a test's `curve` function to make its iteration fail as user code does. The message is that of the failure."""


class Unanswered(Exception):
    """Raised by a test's `respond` function if a request has no answer. The policy gets the message as the error."""


Curve = Callable[[Hyperparameters, int], VirtualStep]
"""Maps hyperparameters and a position to the iteration that ends at that position."""

Generator = Callable[[int], Hyperparameters | None]
"""Maps the number of configurations created so far to the next configuration, or None if there are no more."""


def steady(hyperparameters: Hyperparameters, position: int) -> VirtualStep:
    """Return an iteration of one second with the metric `accuracy`: 0.01 * x * `position`, where x is a hyperparameter (default 1)."""
    return VirtualStep({"accuracy": 0.01 * float(hyperparameters.get("x", 1)) * position})


def counting(made: int) -> Hyperparameters:
    """Return the configuration {"x": made + 1}, where `made` is the number of earlier configurations; a generator without end."""
    return {"x": made + 1}


@dataclass(frozen=True)
class Delays:
    """Durations of operations in the virtual cluster, in virtual seconds, >= 0.

    Attributes:
        start: From the start command to the begin of the first iteration.
        save: The time of saving at the end of a run.
        store: From a save to its arrival in the store. Until then the snapshot is lost if its slot is lost.
        create: The time that the generator needs for a configuration.
        answer: The time until a prediction or a solver's answer arrives.
        amend: From an `AmendRun` to its answer.
    """

    start: float = 0.0
    save: float = 0.0
    store: float = 0.0
    create: float = 0.0
    answer: float = 0.0
    amend: float = 0.0


@dataclass(frozen=True)
class VirtualWorld:
    """The settings of a virtual cluster that never change. Each field is the argument of `VirtualCluster` with the same name."""

    interval: int
    snapshot_every: int
    keep_latest: int
    max_failures: int
    max_losses: int
    grace: float
    delays: Delays
    gathers: bool


@dataclass(frozen=True)
class RunLog:
    """One finished run of the virtual cluster.

    Attributes:
        job: The id of the job.
        attempt: The number of the run within its job.
        slots: The ids of its slots.
        began: The virtual time of the start command, in seconds.
        start: The position at which it began.
        ended: The virtual time of its end, in seconds.
        position: The position that it reached.
        reason: How it ended.
        until: The position to which it was to train.
        mode: The mode of the run.
    """

    job: str
    attempt: int
    slots: tuple[str, ...]
    began: float
    start: int
    ended: float
    position: int
    reason: RunEndReason
    until: int
    mode: RunMode = RunMode.TRAIN


@dataclass
class VirtualRun:
    """A current run of the virtual cluster.

    Attributes:
        command: The command that started it.
        attempt: The number of the run within its job.
        began: The virtual time of the command, in seconds.
        start: The position at which it began.
        until: The position to which it trains.
        allowed: The position before which no decision is needed.
        position: The position of its last report.
        saved: The position of its last snapshot.
        saves: The positions at which it saves.
        started: Whether its process has started.
        training: Whether an iteration is in progress.
        parked: Whether it has reported at `until` and waits there, for a decision or for an amendment.
        held: Whether the decision at `until` was PARK, so that it waits for an amendment.
        finished: Whether the process has nothing left to train.
        leaving: Whether it saves and ends now.
        ending: How it will end at its next boundary; None: it continues.
        displaced: Whether its job loses its slots without a decision of the policy.
        amends: The tickets of its unanswered `AmendRun` commands.
    """

    command: StartJob
    attempt: int
    began: float
    start: int
    until: int
    allowed: int
    position: int = 0
    saved: int = 0
    saves: set[int] = field(default_factory=set)
    started: bool = False
    training: bool = False
    parked: bool = False
    held: bool = False
    finished: bool = False
    leaving: bool = False
    ending: RunEndReason | None = None
    displaced: bool = False
    amends: set[str] = field(default_factory=set)

    @property
    def trains(self) -> bool:
        """Whether the run trains the job (mode TRAIN) rather than evaluating or profiling it."""
        return self.command.mode is RunMode.TRAIN

    @property
    def apart(self) -> bool:
        """Whether the run is a gang in which each rank has one partition."""
        return len(self.command.slots) > 1 and bool(self.command.inputs)


@dataclass
class VirtualJob:
    """A job of the virtual cluster.

    Attributes:
        view: The job as a policy sees it. Only `shown` updates its `slots`, `parked` and `max_position`.
        failures: Number of its failed runs.
        losses: Number of lost runs since the last report above the high-water mark.
        limit: The position at which it is complete; None: that of the experiment.
        queued: A number that orders idle jobs of equal priority; the smallest one starts first.
        run: Its current run; None: none.
        points: Its learning curve.
        parts: The reports of evaluations that are divided among several runs (parts), by position and partition.
        saves: Its snapshots by position, as pairs: the virtual time at which the snapshot is in the store, and the id of
            the slot that has it until then.
    """

    view: JobView
    failures: int = 0
    losses: int = 0
    limit: int | None = None
    queued: int = 0
    run: VirtualRun | None = None
    points: tuple[CurvePoint, ...] = ()
    parts: dict[tuple[int, str], VirtualStep] = field(default_factory=dict)
    saves: dict[int, tuple[float, str]] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The id of the job."""
        return self.view.id

    def change(self, **changes: Any) -> None:
        """Set fields of `view`, given by their names."""
        self.view = replace(self.view, **changes)

    def end(self, max_position: int) -> int:
        """Return the position at which the job is complete: its limit, or `max_position` if it has none."""
        return max_position if self.limit is None else self.limit

    def source(self) -> int:
        """Return the position of the job's newest snapshot, from which it would continue; without one, that of its fork, or 0."""
        return max(self.saves, default=self.view.fork_position)

    def origin(self) -> tuple[int, ...]:
        """Return the position at which the job was forked, in a tuple; empty if it was not forked.

        The job can start from its parent's snapshot at this position.
        """
        return (self.view.fork_position,) if self.view.parent else ()

    def shown(self, max_position: int) -> JobView:
        """Return the job as a policy sees it now; `max_position` is that of the experiment."""
        run = self.run
        slots, parked = (run.command.slots, run.parked) if run is not None else ((), False)
        known, end = self.view, self.end(max_position)
        if (known.slots, known.parked, known.max_position) != (slots, parked, end):
            self.change(slots=slots, parked=parked, max_position=end)
        return self.view

    def add(self, position: int, step: VirtualStep, part: str = "") -> None:
        """Add a report to the learning curve.

        Args:
            position: The position of the report.
            step: The iteration with the metrics.
            part: For one of the runs (parts) among which an evaluation is divided, the name of its partition; the parts at
                a position are averaged, weighted by their examples. Empty: any other report.
        """
        metrics = dict(step.metrics)
        if part:
            self.parts[position, part] = step
            parts = [s for (p, _), s in self.parts.items() if p == position]
            weight = sum(max(s.examples, 1) for s in parts)
            metrics = {n: sum(max(s.examples, 1) * s.metrics[n] for s in parts) / weight for n in metrics}
        known = {point.position: point for point in self.points}
        seconds, earlier = step.seconds, known.get(position)
        if earlier is not None:
            metrics, seconds = {**earlier.metrics, **metrics}, earlier.seconds + seconds
        known[position] = CurvePoint(position, metrics, seconds)
        self.points = tuple(known[p] for p in sorted(known))

    def inherit(self, source: VirtualJob, position: int) -> None:
        """Replace the beginning of the learning curve, up to `position` inclusive, with that of the job `source`."""
        prefix = tuple(p for p in source.points if p.position <= position)
        self.points = prefix + tuple(p for p in self.points if p.position > position)


@dataclass
class VirtualSlot:
    """A slot of the virtual cluster.

    Attributes:
        id: The slot's id, such as "m01".
        job: The id of the job that has a run on it; empty: none.
        granted: Whether the experiment holds the slot.
        reserved: Whether the policy has reserved it.
        hardware: The kind of its host; empty: unknown.
    """

    id: str
    job: str = ""
    granted: bool = False
    reserved: bool = False
    hardware: str = ""

    def view(self) -> SlotView:
        """Return the slot as a policy sees it."""
        return SlotView(self.id, f"node-{self.id}", self.job, self.hardware)
