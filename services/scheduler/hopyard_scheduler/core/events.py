"""What can happen to the core. Each event carries its time; nothing in the core reads a clock.

Cluster events concern machines; experiment events carry the experiment's id and are journalled in its stream. Those that the
cluster part makes for an experiment (`MachineGranted`, `MachineRecalled`, `NodeLost`, `NodeBack`, `NodeDraining`, `ShareSet`)
are journalled there too, so that an experiment replays alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from hopyard.policy.vocabulary import Answer, Command, Hyperparameters, Report, RunEndReason

# ---------------------------------------------------------------------------------------------------------------- values


class RunKey(NamedTuple):
    """One process of one attempt of one job: a channel. An older attempt's messages are refused."""

    experiment: str
    job: str
    attempt: int
    rank: int = 0


class MachineSpec(NamedTuple):
    """A machine as its agent announces it."""

    id: str
    cpus: int = 1
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A snapshot as the agent that took it describes it."""

    position: int
    sha256: str
    size: int = 0
    provider: str = "framework"


@dataclass(frozen=True, slots=True)
class Settings:
    """An experiment's terms, as far as the core needs them.

    Attributes:
        metric: Name of the metric to optimise.
        mode: Which direction is better.
        max_position: Positions at which a job is complete (>= 1).
        jobs: Jobs that may be created (>= 1).
        target: A report at least as good ends the experiment; None: no target.
        target_over: With more than 1, the mean of a job's last so many reports must be as good.
        kill_threshold: For policies.
        max_seconds: Unpaused seconds after which the experiment ends; None: no limit.
        time_suspends: Whether its jobs are suspended then, and go on when there is more time; else they are terminated.
        max_failures: Failures of the user's code that a job survives (>= 0).
        max_losses: Losses without progress that a job survives (>= 0).
        snapshot_every: Units between periodic snapshots of a run; 0: none.
        keep_latest: Newest snapshots kept of a job (>= 1).
        keep_best: Best snapshots kept of a job, by the metric at their position (>= 0).
        snapshot_quota: Bytes that the experiment's snapshots may take (>= 0); None: no limit.
        slots: Machines it may hold at most (>= 1); None: no limit.
        concurrency: Jobs that may train at a time (>= 1); None: no limit.
        weight: Weight of its share (> 0).
        seed: Seed of the policy's chance.
        kill_after: Seconds that a terminated run has to reach a boundary before its process is killed.
        grace: Seconds that a policy has to shrink to a smaller share.
        cpus: CPU threads that each of its machines must have (>= 1).
        gpus: GPUs that each of its machines must have (>= 0).
        statistics: Whether its policy is told of each report (`ApplicationStat`).
        every_iteration: Whether its policy is asked after iterations that do not wait for the answer, too (`IterationFinish`).
        ends_jobs: Whether its policy is asked about runs that have trained their jobs to the end; else they end, saved.
        ship_every: Units between two snapshots that go to the store by themselves; 0: only what is left when jobs end.
        forks: Whether its policy is told that machines are idle also when a snapshot that it asked for is there (`AllocateJobs`).
        evaluates: Whether a job that has trained to its end waits for its policy to evaluate and complete it.
        requests: Whether its policy serves what clients ask for: each gets a job.
        generator_reads: Which results its generator is told: none, how jobs ended, or their reports as well.
        low: The smallest value that the metric can have; None: not known.
        high: The largest one; None: not known.
        space: For policies: the search space in its written form; None: not known.
        constraints: For policies: the constraints that go with it.
        plan: The root of the search plan that its trainings belong to; empty: its policy shares none.
    """

    metric: str
    mode: Literal["max", "min"]
    max_position: int
    jobs: int
    target: float | None = None
    kill_threshold: float | None = None
    max_seconds: float | None = None
    max_failures: int = 0
    max_losses: int = 10
    snapshot_every: int = 0
    keep_latest: int = 1
    keep_best: int = 0
    slots: int | None = None
    weight: float = 1.0
    seed: int = 0
    kill_after: float = 30.0
    grace: float = 30.0
    snapshot_quota: int | None = None
    cpus: int = 1
    gpus: int = 0
    statistics: bool = True
    every_iteration: bool = True
    concurrency: int | None = None
    ends_jobs: bool = True
    generator_reads: Literal["nothing", "finals", "reports"] = "finals"
    low: float | None = None
    high: float | None = None
    target_over: int = 1
    space: Mapping[str, Any] | None = field(default=None, hash=False)
    constraints: tuple[str, ...] = ()
    forks: bool = False
    evaluates: bool = False
    ship_every: int = 1
    requests: bool = False
    plan: str = ""
    time_suspends: bool = False


@dataclass(frozen=True, slots=True)
class PlacedPartition:
    """A partition of an experiment's data, and where it is.

    Attributes:
        name: What policies call it: "train/3".
        size: Its bytes.
        sha256: Their hash.
        examples: How many it has; None: not known.
        places: Its path by node, or its URL, on the live nodes that hold it.
        homes: Nodes that it is registered on, live or not.
        url: Where every node can get it from; empty: nowhere.
    """

    name: str
    size: int = 0
    sha256: str = ""
    examples: int | None = None
    places: Mapping[str, str] = field(default_factory=dict, hash=False)
    homes: tuple[str, ...] = ()
    url: str = ""


@dataclass(frozen=True, slots=True)
class PlacedData:
    """A data set, and where its partitions are."""

    name: str
    partitions: tuple[PlacedPartition, ...]


# -------------------------------------------------------------------------------------------------------- cluster events


@dataclass(frozen=True, slots=True)
class NodeJoined:
    """An agent opened a session and said what it has and what it really runs."""

    at: float
    node: str
    incarnation: str
    machines: tuple[MachineSpec, ...]
    runs: tuple[RunKey, ...] = ()
    snapshots: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeExpired:
    """An agent was silent beyond its lease."""

    at: float
    node: str


@dataclass(frozen=True, slots=True)
class NodeDrained:
    """A node gets nothing more, and its runs are suspended at their next boundary, until its agent is started anew."""

    at: float
    node: str


@dataclass(frozen=True, slots=True)
class NodeEvicted:
    """An agent made room on its disk: it does not hold these snapshots any more. What follows from it is journalled."""

    at: float
    node: str
    snapshots: tuple[str, ...]


ClusterEvent = NodeJoined | NodeExpired | NodeDrained | NodeEvicted


# ----------------------------------------------------------------------------------------------------- experiment events


@dataclass(frozen=True, slots=True)
class EarlierTrial:
    """What an earlier experiment has trained of a configuration.

    Attributes:
        name: Its experiment and job: "digits-1f3a/7".
        hyperparameters: Its configuration.
        reports: Its reports by position, those that it has in common with `after` left out.
        after: (name of one before it, position): up to there both have the same reports. None: it has all of its own.
    """

    name: str
    hyperparameters: Hyperparameters
    reports: tuple[Report, ...] = ()
    after: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class ExperimentCreated:
    """The first event of a stream.

    Attributes:
        at: When.
        experiment: Its id.
        settings: Its terms.
        payload: The shell's own (specification, bundle); the core keeps it.
        data: The partitioned data that it trains on; None: its runs find theirs themselves.
        earlier: What earlier experiments have trained below the same root of the search plan: jobs may be answered from it.
    """

    at: float
    experiment: str
    settings: Settings
    payload: Any = None
    data: PlacedData | None = None
    earlier: tuple[EarlierTrial, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberJoined:
    """Another experiment with the same `share` key joins the stream: one policy for all of them, and one share.

    Attributes:
        at: When.
        experiment: The stream: the experiment that the group began with.
        member: The experiment that joins.
        settings: Its own terms.
        payload: As with `ExperimentCreated`.
    """

    at: float
    experiment: str
    member: str
    settings: Settings
    payload: Any = None


@dataclass(frozen=True, slots=True)
class MachineGranted:
    """The cluster gave the experiment a machine, which has so many CPU threads and these GPUs.

    `incarnation` is the life of its node's agent: what runs there ends with it.
    """

    at: float
    experiment: str
    machine: str
    node: str
    cpus: int = 1
    gpus: tuple[int, ...] = ()
    incarnation: str = ""


@dataclass(frozen=True, slots=True)
class MachineRecalled:
    """The experiment is to leave a machine that another one needs, and gets one of another kind for it."""

    at: float
    experiment: str
    machine: str


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node is gone with its machines, runs and local snapshots, except the `snapshots` that its disk is known to hold."""

    at: float
    experiment: str
    node: str
    snapshots: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeBack:
    """A node opened a session again: these of the experiment's runs and snapshots are really there.

    Attributes:
        at: When.
        experiment: Whose runs and snapshots these are.
        node: Which node.
        runs: Channels that the node has.
        snapshots: What its disk holds.
        lost: Runs that it had taken over and has not any more.
        gone: Machines that it has not any more; their runs are lost too.
        ship: Snapshots (job, position) on its disk that no run brings to the store any more: it is told to.
    """

    at: float
    experiment: str
    node: str
    runs: tuple[RunKey, ...] = ()
    snapshots: tuple[str, ...] = ()
    lost: tuple[RunKey, ...] = ()
    gone: tuple[str, ...] = ()
    ship: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeDraining:
    """A node is drained: the experiment's runs there are suspended at their next boundary, and its machines go back."""

    at: float
    experiment: str
    node: str


@dataclass(frozen=True, slots=True)
class CopiesEvicted:
    """A node has deleted its copies of these snapshots of the experiment, which are in the store."""

    at: float
    experiment: str
    node: str
    snapshots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DataChanged:
    """These partitions of the experiment's data lie elsewhere now. The others are where they were."""

    at: float
    experiment: str
    partitions: tuple[PlacedPartition, ...]


@dataclass(frozen=True, slots=True)
class ShareSet:
    """The experiment may hold so many machines."""

    at: float
    experiment: str
    slots: int


@dataclass(frozen=True, slots=True)
class Started:
    """The run's process is attached and has loaded its state.

    Its agent got `fetched` bytes of it from another agent or `from_store`; 0: it had them, or none were needed.
    """

    position: int
    fetched: int = 0
    from_store: bool = False


@dataclass(frozen=True, slots=True)
class Reports:
    """Reports of a run, in order of position."""

    reports: tuple[Report, ...]


@dataclass(frozen=True, slots=True)
class Amended:
    """The run's answer to an amendment."""

    ticket: str
    accepted: bool
    position: int


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """A snapshot lies on the disk of the run's node."""

    snapshot: SnapshotInfo


@dataclass(frozen=True, slots=True)
class SnapshotStored:
    """A snapshot of the run arrived in the store; may come after the run ended. With an `error` it never will."""

    position: int
    sha256: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """The run's process has left its machine; `finished`: it ended by itself and has nothing more to train."""

    reason: RunEndReason
    position: int
    snapshot: SnapshotInfo | None = None
    user_code: bool = False
    message: str = ""
    snapshot_missing: bool = False
    finished: bool = False


RunBody = Started | Reports | Amended | SnapshotTaken | SnapshotStored | Ended


@dataclass(frozen=True, slots=True)
class RunMessage:
    """The next message of a run's channel: sequence 1, 2, 3, ..."""

    at: float
    experiment: str
    job: str
    attempt: int
    rank: int
    sequence: int
    body: RunBody


@dataclass(frozen=True, slots=True)
class SnapshotShipped:
    """A node answers the order of this number (`NodeBack.ship`): its snapshot is stored, or with an `error` never will be."""

    at: float
    experiment: str
    node: str
    order: int
    job: str
    position: int
    sha256: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class PolicyAnswered:
    """The policy's answer to an up-call, how many machines it could use now, and how many of them at once at least."""

    at: float
    experiment: str
    answer: Answer
    demand: int | None = None
    gang: int = 1


@dataclass(frozen=True, slots=True)
class PolicyFailed:
    """The policy raised, answered nonsense or took too long on an up-call; its experiment pauses.

    Attributes:
        at: When.
        experiment: Whose policy.
        number: The up-call's.
        error: What happened.
        unheard: The policy was given up before it answered. On a replay the up-call is not made here: it comes again, with
            another number, when the experiment is resumed.
    """

    at: float
    experiment: str
    number: int
    error: str
    unheard: bool = False


@dataclass(frozen=True, slots=True)
class Answered:
    """What the core asked the outside is answered; `result` is None with an error."""

    at: float
    experiment: str
    ticket: str
    result: Any = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class TimerElapsed:
    """The time of a timer has come."""

    at: float
    experiment: str
    ticket: str


@dataclass(frozen=True, slots=True)
class Requested:
    """A client asks for a configuration trained to a position. `ticket` makes it idempotent.

    It is the experiment that the stream is named after, unless another `member` is named.
    """

    at: float
    experiment: str
    ticket: str
    hyperparameters: Hyperparameters
    position: int
    member: str = ""


@dataclass(frozen=True, slots=True)
class Operated:
    """A person acts on an experiment: on the one that the stream is named after, unless it names another `member`."""

    at: float
    experiment: str
    action: Literal["pause", "resume", "stop"]
    member: str = ""


@dataclass(frozen=True, slots=True)
class JobOperated:
    """A person acts on a job, with a command that a policy could give too.

    With `asks_anew`, the policy is asked again when that ends a job without a run: others may have waited for it. Without it nobody
    was told, and what was written down so goes on as it did.
    """

    at: float
    experiment: str
    command: Command
    asks_anew: bool = False


@dataclass(frozen=True, slots=True)
class JobHeld:
    """A person pauses a job: it stays without a machine, whatever the policy wants, until a person lets it go on (not `held`).

    With `asks_anew`, the policy is asked again when the job has no run, as for `JobOperated`.
    """

    at: float
    experiment: str
    job: str
    held: bool
    asks_anew: bool = False


@dataclass(frozen=True, slots=True)
class Updated:
    """A person changes an experiment's terms; None leaves a term as it is. `request` makes it idempotent.

    It is the experiment that the stream is named after, unless another `member` is named. `cleared` names the terms that do
    not hold any more: "target", "slots", "concurrency".
    """

    at: float
    experiment: str
    request: str
    more_jobs: int = 0
    max_position: int | None = None
    more_seconds: float = 0.0
    target: float | None = None
    weight: float | None = None
    slots: int | None = None
    member: str = ""
    concurrency: int | None = None
    cleared: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Imported:
    """The stream up to here was written in another cluster, whose nodes and machines are not here.

    Attributes:
        at: When.
        experiment: The stream.
        request: Names the import, so that a repeated one is recognised.
        snapshots: Those that came along and are in the store; all others are lost.
    """

    at: float
    experiment: str
    request: str
    snapshots: tuple[str, ...] = ()


ExperimentEvent = (
    ExperimentCreated
    | MemberJoined
    | Imported
    | MachineGranted
    | MachineRecalled
    | NodeLost
    | NodeBack
    | NodeDraining
    | CopiesEvicted
    | DataChanged
    | ShareSet
    | RunMessage
    | SnapshotShipped
    | PolicyAnswered
    | PolicyFailed
    | Answered
    | TimerElapsed
    | Requested
    | Operated
    | JobOperated
    | JobHeld
    | Updated
)

Event = ClusterEvent | ExperimentEvent
