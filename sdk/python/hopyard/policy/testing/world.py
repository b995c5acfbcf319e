"""The things of the virtual cluster: jobs, runs, machines, and what the author of a test says about training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hopyard.policy.views import CurvePoint, JobView, MachineView
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
    """One iteration of a job: what it reports, how long it took (virtual seconds), whether it was the last."""

    metrics: Metrics
    seconds: float = 1.0
    finished: bool = False
    examples: int = 0


class TrainingFailed(Exception):
    """Raised by a curve: the user's code fails in this iteration."""


class Unanswered(Exception):
    """Raised by a responder: the question cannot be answered; the policy gets the message as the error."""


Curve = Callable[[Hyperparameters, int], VirtualStep]
"""(hyperparameters, position) to the iteration that ends at that position."""

Generator = Callable[[int], Hyperparameters | None]
"""How many configurations were made so far to the next one; None: exhausted."""


def steady(hyperparameters: Hyperparameters, position: int) -> VirtualStep:
    """A curve that rises by the job's `x` a unit, one second an iteration."""
    return VirtualStep({"accuracy": 0.01 * float(hyperparameters.get("x", 1)) * position})


def counting(made: int) -> Hyperparameters:
    """A generator that never ends: {"x": 1}, {"x": 2}, ..."""
    return {"x": made + 1}


@dataclass(frozen=True)
class Delays:
    """How long things take, in virtual seconds; zero is legal everywhere.

    Attributes:
        start: From the start command to the first iteration.
        save: Saving at the end of a run.
        store: From a save to its arrival in the store; until then it dies with its machine.
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
    """The fixed terms of a virtual cluster; `VirtualCluster` says what each means."""

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
    """One finished run: where, when, from which position to which, why it ended, up to where it was to train, and what it was for."""

    job: str
    attempt: int
    machines: tuple[str, ...]
    began: float
    start: int
    ended: float
    position: int
    reason: RunEndReason
    until: int
    mode: RunMode = RunMode.TRAIN


@dataclass
class VirtualRun:
    """A run under way. `training`: an iteration is in flight; `held`: the last decision at `until` was PARK."""

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
        """Whether it trains (and does not evaluate or profile)."""
        return self.command.mode is RunMode.TRAIN

    @property
    def apart(self) -> bool:
        """Whether it is a gang whose ranks have partitions of their own."""
        return len(self.command.machines) > 1 and bool(self.command.inputs)


@dataclass
class VirtualJob:
    """A job. `saves`: position to (when it is stored, the machine that holds it till then)."""

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
        """Where it is complete, if all others are at `max_position`."""
        return max_position if self.limit is None else self.limit

    def source(self) -> int:
        """The position that it would go on from."""
        return max(self.saves, default=self.fork_position)

    def origin(self) -> tuple[int, ...]:
        """Where it was forked: the snapshot there is its parent's, which it can start from."""
        return (self.fork_position,) if self.parent else ()

    def view(self, max_position: int) -> JobView:
        """The job as a policy sees it."""
        run = self.run
        return JobView(
            id=self.id,
            state=self.state,
            hyperparameters=self.hyperparameters,
            position=self.position,
            high_water=self.high_water,
            attempt=self.attempt,
            machines=run.command.machines if run else (),
            priority=self.priority,
            parent=self.parent,
            fork_position=self.fork_position,
            parked=run is not None and run.parked,
            ordinal=self.ordinal,
            max_position=self.end(max_position),
        )

    def add(self, position: int, step: VirtualStep, part: str = "") -> None:
        """Adds a report to the curve; parts of an evaluation are combined, weighted by their examples."""
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
        """Takes over another job's curve up to a position."""
        prefix = tuple(p for p in source.points if p.position <= position)
        self.points = prefix + tuple(p for p in self.points if p.position > position)


@dataclass
class VirtualMachine:
    """A machine that exists; `held`: by the experiment."""

    id: str
    job: str = ""
    held: bool = False
    reserved: bool = False
    hardware: str = ""

    def view(self) -> MachineView:
        """The machine as a policy sees it."""
        return MachineView(self.id, f"node-{self.id}", self.job, self.hardware)
