"""The entities of a stream: jobs, runs, the processes (ranks) of a run, and slots."""

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
    """Represents one process of a run.

    Attributes:
        slot: Id of the slot that the process occupies.
        node: Name of the slot's node.
        channel: The message channel between the core and the process.
        started: Whether the process has loaded its state.
        gone: Whether the process has left its slot: its agent reported this, or its node is lost.
        missed: Whether the process ended because it could not load its snapshot.
        missed_at: Names of other nodes that were asked for this snapshot and do not have an undamaged copy either.
    """

    slot: str
    node: str
    channel: RunChannel
    started: bool = False
    gone: bool = False
    missed: bool = False
    missed_at: tuple[str, ...] = ()


@dataclass(slots=True)
class Run:
    """One attempt of a job on its slots. All ranks have the same attempt number.

    Attributes:
        job: Id of the job.
        attempt: Number of the run within its job, from 1.
        mode: Train, evaluate or profile.
        ranks: Its processes. Rank 0 sends the reports and snapshots and receives the decisions.
        until: Position at which the run stops training and waits for a decision.
        allowed: Position below which reports need no decision.
        start: Position at which it started.
        source: The snapshot that it loads. It is pinned until all processes have started, and None from then on; None also if the run
            starts without a snapshot.
        inputs: The input of each process by the id of its slot: a partition name, or a path if the data is not partitioned.
        preemptible: Whether it may lose its slots to another experiment before `until`.
        parts: Number of parts of the evaluation that it belongs to; 0: unknown.
        model: Hash of the snapshot that it loads; empty: it starts without a snapshot.
        completes: Whether it saves and ends at `until` without a decision, which completes its job.
        state: State, see `run_states`.
        position: Position of its last report; `start` before the first report.
        finished: Whether the program has nothing more to train.
        ending: Requested end; None: no end is requested.
        displaced: Whether its job loses its slots without a decision of the policy: by a pause, a preemption, or with a node.
        why: Reason of the job's state when the run has ended as TERMINATED; None: its end as TERMINATED is not requested.
        ended: End as reported by rank 0, or created by the engine when another rank is lost or fails; None while it has not ended.
        amends: Unanswered amendments by ticket, each as (new `until`, additional positions to save). A None `until` is unchanged.
        accounted: Time up to which its slot time is billed, in seconds since the Unix epoch.
        wanted: Experiments to which its slot time is billed, each up to a position; empty: only its own experiment.
        story: Its last state changes, oldest first, for error messages.
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
    displaced: bool = False
    why: Reason | None = None
    ended: Ended | None = None
    amends: dict[str, tuple[int | None, tuple[int, ...]]] = field(default_factory=dict)
    accounted: float = 0.0
    wanted: tuple[tuple[str, int], ...] = ()
    story: deque[object] = field(default_factory=lambda: deque(maxlen=STORY_LENGTH))

    @property
    def parked(self) -> bool:
        """Whether the run waits for a decision at `until` with its state in memory."""
        return self.state is RunState.PARKED

    @property
    def holder(self) -> str:
        """The name of the run as a holder of snapshot pins (`SnapshotEntry.pins`)."""
        return f"run:{self.job}.{self.attempt}"

    @property
    def slots(self) -> tuple[str, ...]:
        """The ids of the slots that the run occupies, in rank order."""
        return tuple(rank.slot for rank in self.ranks)

    @property
    def coming_until(self) -> int:
        """The value that `until` will have if all pending amendments are accepted."""
        moved = [until for until, _ in self.amends.values() if until is not None]
        return moved[-1] if moved else self.until


@dataclass(slots=True)
class Job:
    """Represents a job: the training of one configuration.

    Attributes:
        id: Id within its stream: a number as text, from "1".
        ordinal: The id as a number.
        created_at: Time of its creation in seconds since the Unix epoch.
        experiment: The experiment that it belongs to.
        state: State, see `job_states`.
        hyperparameters: Its configuration; None while it is CREATING.
        origin: (job, position) of the curve that it continues, because it was forked, started from another job's snapshot, or was
            answered from another job's results; None: it continues no other curve.
        prefix: The entries of that other curve up to the position in `origin`, copied when `origin` was set.
        fork_pin: The origin's snapshot that a fork starts from, pinned until the fork has a snapshot in the store; else None.
        forked: Whether the job resumes from its origin's snapshot while it has no snapshot itself.
        copied: Whether a fork command created it. Then the results up to the position in `origin` were trained with the configuration
            of the job in `origin`.
        generated: Whether the generator proposed its configuration.
        priority: Priority among idle jobs, higher first; None is the same as 0.
        attempt: Number of runs so far.
        position: If idle, the position at which it resumes. If it has a run, the position that the run has reached.
        high_water: High-water mark: the highest position with results, its own or another job's. Only reports above it cause up-calls.
        curve: The reports of its own runs and those copied from other experiments.
        run: Its current run; None: it has none.
        channels: Channels of all its runs by (attempt, rank).
        predictions: Tickets of unanswered prediction requests for its curve.
        asked: Positions at which the policy requested a snapshot, to fork from it later.
        kept: The requested positions that the policy has not released; None: all of them.
        displaced: Whether it lost its slots without a decision of the policy, and waits for others since then. It is set only if
            `Settings.displaced_first`. Then it comes first in the idle queue.
        loses: Whether an earlier run was suspended or preempted after some training and left no snapshot, so the training was lost.
        held: Whether a person paused it: it is HELD, or becomes HELD when its run has ended.
        lends: Whether its snapshots are kept for other experiments of the group. It is set when its experiment ends while others have
            the same search plan.
        limit: Maximum position of this job; None: the maximum of its experiment.
        failures: Number of runs that failed in user code.
        losses: Number of lost runs since the last new report.
        suspends: Number of suspended and preempted runs.
        seconds: Training time of its reports in seconds.
        best: (value, position) of its best finite report; None: there is none.
        reason: The reason of its state; None: none was recorded yet.
        story: Its last state changes, oldest first, for error messages.
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
    displaced: bool = False
    loses: bool = False
    held: bool = False
    lends: bool = False
    limit: int | None = None
    failures: int = 0
    losses: int = 0
    setbacks: int = 0
    """Number of lost and failed runs since the last progress (a new report)."""
    failure: Reason | None = None
    """The reason FAILED of its last failed run that was not its last attempt; None: there is none since the last new report."""
    unsaved: int = 0
    """Number of runs since the last progress that reached `until` and left no snapshot there."""
    unable: set[str] = field(default_factory=set)
    """Names of the nodes on which a run of it failed permanently (`Ended.permanent`)."""
    suspends: int = 0
    seconds: float = 0.0
    best: tuple[float, int] | None = None
    last: float | None = None
    """The most recently reported value of the experiment's metric; None: none was reported."""
    rung: tuple[int, int] | None = None
    """Its rung and the number of rungs of its bracket, when the policy last stated a demand of 0; None: it is on no rung."""
    reason: Reason | None = None
    story: deque[object] = field(default_factory=lambda: deque(maxlen=STORY_LENGTH))

    def ask(self, positions: Iterable[int]) -> None:
        """Record that the policy requests snapshots at `positions`."""
        self.asked.update(positions)
        if self.kept is not None:
            self.kept.update(positions)

    @property
    def terms(self) -> Settings:
        """The settings of the job's experiment."""
        return self.experiment.settings

    @property
    def max_position(self) -> int:
        """The position at which the job is complete: its own limit if it has one, else the maximum position of its experiment.

        The value is `ENDLESS` or above if there is no maximum.
        """
        return self.terms.max_position if self.limit is None else self.limit

    @property
    def answered(self) -> bool:
        """Whether the job's newest results were recorded by reference to another job (`origin`).

        The job has then no snapshot at their position to resume from.
        """
        return self.origin is not None and not self.forked and self.high_water == self.origin[1]

    @property
    def shared(self) -> int:
        """The highest position with results of another job, if the job itself has not trained so far; else 0.

        It is above 0 only for a job that never ran, or whose newest results were recorded by reference to another job.
        """
        by_others = not self.attempt or self.answered
        return self.high_water if by_others and self.high_water > self.position else 0

    @property
    def reached(self) -> int:
        """The highest position with results, also if the job would resume from an earlier one."""
        return max(self.position, self.high_water)

    @property
    def fork_holder(self) -> str:
        """The name under which the job pins the snapshot that it was forked from (`SnapshotEntry.pins`)."""
        return f"fork:{self.id}"


@dataclass(frozen=True, slots=True)
class EarlierResult:
    """The training of a configuration in an earlier experiment, which jobs of this stream can reuse.

    Attributes:
        hyperparameters: The configuration.
        reports: All reports of the training by position, ascending; at least one.
        snapshots: The snapshots that jobs may start from, by position.
        experiment: The experiment of this stream whose first event contained the result.
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
    """Convert the trials of an event to complete results.

    A trial leaves out the reports that it shares with a preceding trial (`EarlierTrial.after`). They are copied from that trial.

    Args:
        trials: The trials. A trial follows the one that it refers to.
        experiment: Id of the experiment whose event contains the trials. It is copied into the results.

    Returns:
        The results by the names of the trials.
    """
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
    """Represents a slot that the cluster has granted to the stream.

    Attributes:
        id: Id of the slot.
        node: Name of the node.
        run: The run that occupies the slot; None: the slot is idle.
        reserved: Whether the policy or a client has reserved the slot.
        reservation: Request id of the client that reserved the slot; empty: no client has reserved it.
        cpus: Number of CPU threads.
        gpus: Indices of the GPUs on the node.
        incarnation: The incarnation of the agent that announced the slot (`NodeJoined`).
        hardware: Kind of host; empty: unknown.
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
        """The slot's id and hardware, as announced by its agent."""
        return SlotSpec(self.id, self.cpus, self.gpus, self.hardware)

    @property
    def idle(self) -> bool:
        """Whether no run occupies the slot."""
        return self.run is None
