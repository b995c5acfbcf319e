"""The things that the core owns: jobs, runs, slots."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from hopyard.policy.vocabulary import ExperimentId, Hyperparameters, JobState, Report, RunEndReason, RunMode
from hopyard.policy.vocabulary.reasons import Reason
from hopyard_engine.core.events import Ended
from hopyard_engine.core.state.channel import RunChannel
from hopyard_engine.core.state.curve import CurveEntry, LearningCurve
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.snapshot_entries import SnapshotId
from hopyard_engine.core.state_machines.run_states import RUN, RunState
from hopyard_engine.core.state_machines.transitions import STORY_LENGTH
from hopyard_engine.core.types import EarlierTrial, Settings, SlotSpec, SnapshotInfo


@dataclass(slots=True)
class Rank:
    """One process of a run.

    `gone` once its agent said that it left its slot, or its node is lost; `missed` if its snapshot was nowhere to be had.
    """

    slot: str
    node: str
    channel: RunChannel
    started: bool = False
    gone: bool = False
    missed: bool = False


@dataclass(slots=True)
class Run:
    """One placement of a job on its slots; one attempt for all ranks.

    Attributes:
        job: Whose run it is.
        attempt: Which of the job's runs.
        mode: Train, evaluate or profile.
        ranks: Its processes; rank 0 reports, snapshots and gets the decisions.
        until: Where it parks.
        allowed: Reports below it need no decision.
        start: The position that it started from.
        source: The snapshot that it loads; pinned until all its processes have started.
        inputs: Input partition by slot.
        preemptible: Whether it may lose its slot to another experiment before `until`.
        parts: An evaluation of one of so many parts; 0: not known.
        model: The hash of the snapshot that it loads; empty: it begins from nothing.
        completes: Whether it ends at `until` by itself, saved: that is its job's end, and its policy decides nothing there.
        state: See `run_states`.
        position: Its last report's position.
        finished: Whether the training process has nothing more to train.
        ending: Why it shall end; None while it shall go on.
        ended: Rank 0's last word.
        amends: Amendments under way: ticket to (until, save points).
        accounted: Up to when its slots' time was billed.
        wanted: Experiments that want what it trains, each up to a position; none: its own.
        story: Its newest changes of state, oldest first.
    """

    job: str
    attempt: int
    mode: RunMode
    ranks: list[Rank]
    until: int
    allowed: int
    start: int
    source: SnapshotId | None
    inputs: dict[str, str]
    preemptible: bool
    completes: bool = False
    parts: int = 0
    model: str = ""
    state: RunState = RUN.initial
    position: int = 0
    finished: bool = False
    ending: RunEndReason | None = None
    ended: Ended | None = None
    amends: dict[str, tuple[int | None, tuple[int, ...]]] = field(default_factory=dict)
    accounted: float = 0.0
    wanted: tuple[tuple[str, int], ...] = ()
    story: deque[object] = field(default_factory=lambda: deque(maxlen=STORY_LENGTH))

    @property
    def parked(self) -> bool:
        """Whether it waits at `until`."""
        return self.state is RunState.PARKED

    @property
    def holder(self) -> str:
        """Its name as the holder of a snapshot pin."""
        return f"run:{self.job}.{self.attempt}"

    @property
    def slots(self) -> tuple[str, ...]:
        """Its slots in rank order."""
        return tuple(rank.slot for rank in self.ranks)

    @property
    def coming_until(self) -> int:
        """Where it will park once the amendments under way are in force."""
        moved = [until for until, _ in self.amends.values() if until is not None]
        return moved[-1] if moved else self.until


@dataclass(slots=True)
class Job:
    """The training of one configuration.

    Attributes:
        id: Within its experiment.
        ordinal: Order of creation, from 1.
        experiment: The experiment that it belongs to.
        state: See `states`.
        hyperparameters: Its configuration; None while it is being created.
        origin: (job, position) whose curve it continues: a fork, a foreign snapshot, or the answer it was completed with.
        prefix: The points of that other curve up to there, as they were when the two parted.
        fork_pin: The snapshot that a forked job starts from, pinned until it has a stored one of its own.
        forked: Whether it goes on from its origin's state until it has one of its own.
        copied: Whether it was made by a fork: up to there it was trained with its ancestor's configuration.
        generated: Whether the generator proposed its configuration.
        priority: Orders idle jobs.
        attempt: Runs so far.
        position: Where it would go on from now (idle) or stands (running).
        high_water: The highest position that was ever reported; up-calls fire above it only.
        run: Its present run.
        channels: Numbers of the channels of all its runs by (attempt, rank).
        predictions: Tickets of questions about its curve that are not answered.
        asked: Positions at which the policy asked for a snapshot: it may want to fork there.
        kept: Where it may want to, since it has said so; None: wherever it asked for one.
        held: Whether a person has paused it: it is HELD, or will be when its run has left.
        lends: Whether it ended with its experiment only, while others of the group train alike: they may go on from what it saved.
        limit: Where it is complete if that is its own; None: where all jobs of its experiment are.
    """

    id: str
    ordinal: int
    created_at: float
    experiment: Experiment
    state: JobState = JobState.CREATING
    hyperparameters: Hyperparameters | None = None
    origin: SnapshotId | None = None
    prefix: tuple[CurveEntry, ...] = ()
    fork_pin: SnapshotId | None = None
    forked: bool = False
    copied: bool = False
    generated: bool = False
    priority: float | None = None
    attempt: int = 0
    position: int = 0
    high_water: int = 0
    curve: LearningCurve = field(default_factory=LearningCurve)
    run: Run | None = None
    channels: dict[tuple[int, int], RunChannel] = field(default_factory=dict)
    predictions: dict[str, None] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)
    kept: set[int] | None = None
    held: bool = False
    lends: bool = False
    limit: int | None = None
    failures: int = 0
    losses: int = 0
    setbacks: int = 0
    """Losses and failures of the user's code since it made progress last."""
    unsaved: int = 0
    """How often, since it made progress last, a run came to its `until` and left no snapshot there."""
    suspends: int = 0
    seconds: float = 0.0
    best: tuple[float, int] | None = None
    last: float | None = None
    """The newest value of the experiment's metric."""
    reason: Reason | None = None
    story: deque[object] = field(default_factory=lambda: deque(maxlen=STORY_LENGTH))

    def ask(self, positions: Iterable[int]) -> None:
        """The policy asks for snapshots at positions."""
        self.asked.update(positions)
        if self.kept is not None:
            self.kept.update(positions)

    @property
    def terms(self) -> Settings:
        """The terms of its experiment."""
        return self.experiment.settings

    @property
    def max_position(self) -> int:
        """Where it is complete."""
        return self.terms.max_position if self.limit is None else self.limit

    @property
    def answered(self) -> bool:
        """Whether the last that it has are another job's results, which it cannot go on from by itself."""
        return self.origin is not None and not self.forked and self.high_water == self.origin[1]

    @property
    def shared(self) -> int:
        """Up to where results that others trained count for it, where it stands behind that itself; 0: nowhere."""
        by_others = not self.attempt or self.answered
        return self.high_water if by_others and self.high_water > self.position else 0

    @property
    def fork_holder(self) -> str:
        """Its name as the holder of its origin's pin."""
        return f"fork:{self.id}"


@dataclass(frozen=True, slots=True)
class EarlierResult:
    """What an earlier experiment has trained of a configuration: all its reports, by position, one at the least.

    `snapshots` are those that jobs may start from, by position; `experiment` is the one that brought it.
    """

    hyperparameters: Hyperparameters
    reports: tuple[Report, ...]
    snapshots: dict[int, SnapshotInfo] = field(default_factory=dict)
    experiment: ExperimentId = ExperimentId("")

    @property
    def high_water(self) -> int:
        """How far it was trained."""
        return self.reports[-1].position


def earlier_of(trials: Iterable[EarlierTrial], experiment: ExperimentId = ExperimentId("")) -> dict[str, EarlierResult]:
    """What an experiment brings, by name, each with the reports that it has in common with one before it."""
    found: dict[str, EarlierResult] = {}
    for trial in trials:
        before = found[trial.after[0]].reports if trial.after is not None else ()
        until = trial.after[1] if trial.after is not None else 0
        reports = (*(report for report in before if report.position <= until), *trial.reports)
        saved = {snapshot.position: snapshot for snapshot in trial.snapshots}
        found[trial.name] = EarlierResult(trial.hyperparameters, reports, saved, experiment)
    return found


@dataclass(slots=True)
class GrantedSlot:
    """A slot that the stream holds, of a node's agent in this `incarnation`.

    `run` is its lease. `reservation` names the request of the client that reserved it; empty: it is free, or the policy reserved it.
    """

    id: str
    node: str
    run: Run | None = None
    reserved: bool = False
    reservation: str = ""
    cpus: int = 1
    gpus: tuple[int, ...] = ()
    incarnation: str = ""
    hardware: str = ""

    @property
    def spec(self) -> SlotSpec:
        """What it has."""
        return SlotSpec(self.id, self.cpus, self.gpus, self.hardware)

    @property
    def idle(self) -> bool:
        """Whether a run may be placed on it."""
        return self.run is None
