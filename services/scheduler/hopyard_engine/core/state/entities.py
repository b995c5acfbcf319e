"""The entities of a stream: jobs, runs, processes (ranks) and slots."""

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

    `gone` is set when its agent reports that it left its slot, or its node is lost; `missed` if it could not find its snapshot.
    """

    slot: str
    node: str
    channel: RunChannel
    started: bool = False
    gone: bool = False
    missed: bool = False


@dataclass(slots=True)
class Run:
    """One attempt of a job on its slots. All ranks have the same attempt number.

    Attributes:
        job: Id of the job.
        attempt: Number of the run within its job, from 1.
        mode: Train, evaluate or profile.
        ranks: Its processes. Rank 0 sends the reports and snapshots and receives the decisions.
        until: Position at which the run is parked.
        allowed: Position below which reports need no decision.
        start: Position at which it started.
        source: The snapshot that it loads, pinned until all its processes have started.
        inputs: Input partition by slot.
        preemptible: Whether it may lose its slots to another experiment before `until`.
        parts: Number of parts of the evaluation that it belongs to; 0: unknown.
        model: Hash of the snapshot that it loads; empty: it starts without a snapshot.
        completes: Whether it saves and ends at `until` by itself, which completes its job without a decision.
        state: State, see `run_states`.
        position: Position of its last report.
        finished: Whether the program has nothing more to train.
        ending: Requested end; None while it continues.
        ended: End as reported by rank 0, or made by the engine when another rank is lost or fails; None while it has not ended.
        amends: Pending amendments: ticket to (until, save points).
        accounted: Time up to which its slots are billed.
        wanted: Experiments that are billed for it, each up to a position; empty: only its own experiment.
        story: Its last state changes, oldest first, for messages.
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
        """True if it waits at `until`."""
        return self.state is RunState.PARKED

    @property
    def holder(self) -> str:
        """The name under which it pins snapshots."""
        return f"run:{self.job}.{self.attempt}"

    @property
    def slots(self) -> tuple[str, ...]:
        """The ids of its slots in rank order."""
        return tuple(rank.slot for rank in self.ranks)

    @property
    def coming_until(self) -> int:
        """The value of `until` after all pending amendments are accepted."""
        moved = [until for until, _ in self.amends.values() if until is not None]
        return moved[-1] if moved else self.until


@dataclass(slots=True)
class Job:
    """The training of one configuration.

    Attributes:
        id: Id within its stream: a number as text, from "1".
        ordinal: The same as a number.
        created_at: Time of its creation.
        experiment: Its experiment.
        state: State, see `job_states`.
        hyperparameters: Its configuration; None while it is CREATING.
        origin: (job, position) of the curve that it continues: by a fork, by starting from another job's snapshot, or by an answer
            from another job's results.
        prefix: The entries of the origin's curve up to that position, copied when `origin` was set.
        fork_pin: Snapshot of the origin that a fork starts from, pinned until the fork has a stored snapshot.
        forked: Whether it resumes from its origin's snapshot until it has its own.
        copied: Whether a fork command created it, so the results up to its origin belong to the parent's configuration.
        generated: Whether the generator proposed its configuration.
        priority: Priority among idle jobs; None counts as 0.
        attempt: Number of runs so far.
        position: Position at which it resumes (idle), or which its run has reached (running).
        high_water: Highest position ever reported. Only reports above it cause up-calls.
        run: Its current run.
        channels: Channels of all its runs by (attempt, rank).
        predictions: Tickets of unanswered predictions of its curve.
        asked: Positions at which the policy requested a snapshot, to fork from it later.
        kept: The requested positions that the policy has not released; None: all of them.
        held: Whether a person paused it: it is HELD, or becomes HELD when its run has ended.
        lends: Whether it ended with its experiment while other experiments of the group have the same training and may use its
            snapshots.
        limit: Its own maximum position; None: the maximum of its experiment.
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
    """Losses and failures of user code since the last progress."""
    unsaved: int = 0
    """Runs since the last progress that reached `until` and left no snapshot there."""
    suspends: int = 0
    seconds: float = 0.0
    best: tuple[float, int] | None = None
    last: float | None = None
    """The last value of the experiment's metric."""
    reason: Reason | None = None
    story: deque[object] = field(default_factory=lambda: deque(maxlen=STORY_LENGTH))

    def ask(self, positions: Iterable[int]) -> None:
        """Records that the policy requests snapshots at these positions."""
        self.asked.update(positions)
        if self.kept is not None:
            self.kept.update(positions)

    @property
    def terms(self) -> Settings:
        """The settings of its experiment."""
        return self.experiment.settings

    @property
    def max_position(self) -> int:
        """The position at which it is complete."""
        return self.terms.max_position if self.limit is None else self.limit

    @property
    def answered(self) -> bool:
        """True if its newest results are another job's, so that it has no snapshot at their position to resume from."""
        return self.origin is not None and not self.forked and self.high_water == self.origin[1]

    @property
    def shared(self) -> int:
        """The position up to which another job's results count for it, if that is beyond its own training; 0: none."""
        by_others = not self.attempt or self.answered
        return self.high_water if by_others and self.high_water > self.position else 0

    @property
    def fork_holder(self) -> str:
        """The name under which it pins its origin's snapshot."""
        return f"fork:{self.id}"


@dataclass(frozen=True, slots=True)
class EarlierResult:
    """The training of a configuration in an earlier experiment: all its reports by position, at least one.

    `snapshots` are the snapshots that jobs may start from, by position. `experiment` is the experiment whose event contained the
    result.
    """

    hyperparameters: Hyperparameters
    reports: tuple[Report, ...]
    snapshots: dict[int, SnapshotInfo] = field(default_factory=dict)
    experiment: ExperimentId = ExperimentId("")

    @property
    def high_water(self) -> int:
        """The highest reported position."""
        return self.reports[-1].position


def earlier_of(trials: Iterable[EarlierTrial], experiment: ExperimentId = ExperimentId("")) -> dict[str, EarlierResult]:
    """Returns the results of earlier trials by name, with the reports that a trial shares with a preceding one filled in."""
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
    """A slot that the stream holds. `incarnation` is that of the agent that announced it.

    `run` is the run that occupies it. `reservation` is the request id of the client that reserved it; empty: not reserved by a
    client.
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
        """The slot's id and hardware."""
        return SlotSpec(self.id, self.cpus, self.gpus, self.hardware)

    @property
    def idle(self) -> bool:
        """True if no run occupies it."""
        return self.run is None
