"""The jobs, runs and slots of the virtual cluster, and the types with which a test describes training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hopyard.policy.views import CurvePoint, JobView, SlotView
from hopyard.policy.vocabulary import (
    Hyperparameters,
    JobState,
    Metrics,
    RunEndReason,
    RunMode,
    StartJob,
)


@dataclass(frozen=True)
class VirtualStep:
    """One iteration of a job: its report, its duration in virtual seconds, and whether it was the last one."""

    metrics: Metrics
    seconds: float = 1.0
    finished: bool = False
    examples: int = 0


class TrainingFailed(Exception):
    """A curve raises it if the user's code fails in this iteration."""


class Unanswered(Exception):
    """A responder raises it if the question has no answer. The policy gets the message as the error."""


Curve = Callable[[Hyperparameters, int], VirtualStep]
"""Maps hyperparameters and a position to the iteration that ends at that position."""

Generator = Callable[[int], Hyperparameters | None]
"""Maps the number of configurations created so far to the next configuration, or None if there are no more."""


def steady(hyperparameters: Hyperparameters, position: int) -> VirtualStep:
    """A curve that rises by the job's `x` per unit, with one second per iteration."""
    return VirtualStep({"accuracy": 0.01 * float(hyperparameters.get("x", 1)) * position})


def counting(made: int) -> Hyperparameters:
    """A generator without end: {"x": 1}, {"x": 2}, ..."""
    return {"x": made + 1}


@dataclass(frozen=True)
class Delays:
    """Durations in virtual seconds. Zero is always allowed.

    Attributes:
        start: From the start command to the first iteration.
        save: Saving at the end of a run.
        store: From a save to its arrival in the store. Until then it is lost if its slot is lost.
        create: The generator's time for a configuration.
        answer: The time for a prediction or another question.
        amend: From an amendment to its answer.
    """

    start: float = 0.0
    save: float = 0.0
    store: float = 0.0
    create: float = 0.0
    answer: float = 0.0
    amend: float = 0.0


@dataclass(frozen=True)
class VirtualWorld:
    """The fixed settings of a virtual cluster. `VirtualCluster` describes them."""

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
    """One finished run: job, slots, times, positions, reason of the end, intended end, and mode."""

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
    """A current run. `training`: an iteration is in progress. `held`: the last decision at `until` was PARK."""

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
    amends: set[str] = field(default_factory=set)

    @property
    def trains(self) -> bool:
        """Whether it trains, in contrast to evaluating or profiling."""
        return self.command.mode is RunMode.TRAIN

    @property
    def apart(self) -> bool:
        """Whether it is a gang whose ranks have one partition each."""
        return len(self.command.slots) > 1 and bool(self.command.inputs)


@dataclass
class VirtualJob:
    """A job. `saves` maps each position to the time when it is stored and the slot that holds it until then."""

    id: str
    ordinal: int
    state: JobState = JobState.CREATING
    hyperparameters: Hyperparameters = field(default_factory=dict)
    position: int = 0
    high_water: int = 0
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    priority: float | None = None
    parent: str = ""
    fork_position: int = 0
    limit: int | None = None
    queued: int = 0
    run: VirtualRun | None = None
    points: tuple[CurvePoint, ...] = ()
    parts: dict[tuple[int, str], VirtualStep] = field(default_factory=dict)
    saves: dict[int, tuple[float, str]] = field(default_factory=dict)

    def end(self, max_position: int) -> int:
        """Return the position at which it is complete. `max_position` applies if it has no limit."""
        return max_position if self.limit is None else self.limit

    def source(self) -> int:
        """Return the position from which it would continue."""
        return max(self.saves, default=self.fork_position)

    def origin(self) -> tuple[int, ...]:
        """Return the position at which it was forked. It can start from its parent's snapshot there."""
        return (self.fork_position,) if self.parent else ()

    def view(self, max_position: int) -> JobView:
        """Return the job as a policy sees it."""
        run = self.run
        return JobView(
            id=self.id,
            state=self.state,
            hyperparameters=self.hyperparameters,
            position=self.position,
            high_water=self.high_water,
            attempt=self.attempt,
            slots=run.command.slots if run else (),
            priority=self.priority,
            parent=self.parent,
            fork_position=self.fork_position,
            parked=run is not None and run.parked,
            ordinal=self.ordinal,
            max_position=self.end(max_position),
        )

    def add(self, position: int, step: VirtualStep, part: str = "") -> None:
        """Add a report to the curve. Parts of an evaluation are combined, weighted by their examples."""
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
        """Take over another job's curve up to a position."""
        prefix = tuple(p for p in source.points if p.position <= position)
        self.points = prefix + tuple(p for p in self.points if p.position > position)


@dataclass
class VirtualSlot:
    """An existing slot. `granted`: it belongs to the experiment."""

    id: str
    job: str = ""
    granted: bool = False
    reserved: bool = False
    hardware: str = ""

    def view(self) -> SlotView:
        """Return the slot as a policy sees it."""
        return SlotView(self.id, f"node-{self.id}", self.job, self.hardware)
