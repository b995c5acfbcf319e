"""What events and effects are made of: terms, slots, snapshots, placed data. They change nothing by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from hopyard.policy.vocabulary import Hyperparameters, Report


class SlotSpec(NamedTuple):
    """A slot as its agent announces it. `hardware` is the kind of host that it is of; empty: not known."""

    id: str
    cpus: int = 1
    gpus: tuple[int, ...] = ()
    hardware: str = ""


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """The policy with which a stream begins, and the version of its decisions."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A snapshot as the agent that took it describes it."""

    position: int
    sha256: str
    size: int = 0
    provider: str = "framework"

    @property
    def keeps_values(self) -> bool:
        """Whether it is of processes, which go on with the hyperparameters that they have in memory."""
        return self.provider == "criu"


@dataclass(frozen=True, slots=True)
class Settings:
    """An experiment's terms, as far as the core needs them.

    Attributes:
        metric: Name of the metric to optimise.
        mode: Which direction is better.
        max_position: Positions at which a job is complete (>= 1).
        jobs: Jobs that may be created (>= 0).
        target: A report at least as good ends the experiment; None: no target.
        target_over: With more than 1, the mean of a job's last so many reports must be as good.
        kill_threshold: For policies.
        max_seconds: Unpaused seconds after which the experiment ends and suspends its jobs; None: no limit.
        max_failures: Failures of the user's code that a job survives (>= 0).
        max_losses: Losses without progress that a job survives (>= 0).
        snapshot_every: Units between periodic snapshots of a run; 0: none.
        keep_latest: Newest snapshots kept of a job (>= 1).
        keep_best: Best snapshots kept of a job, by the metric at their position (>= 0).
        snapshot_quota: Bytes that the experiment's snapshots may take (>= 0); None: no limit.
        slots: Slots it may hold at most (>= 1); None: no limit.
        concurrency: Jobs that may train at a time (>= 1); None: no limit.
        weight: Weight of its share (> 0).
        seed: Seed of the policy's chance.
        kill_after: Seconds that a terminated run has to reach a boundary before its process is killed.
        grace: Seconds that a policy has to shrink to a smaller share.
        cpus: CPU threads that each of its slots must have (>= 1).
        gpus: GPUs that each of its slots must have (>= 0).
        statistics: Whether its policy is told of each report (`ApplicationStat`).
        every_iteration: Whether its policy is asked after iterations that do not wait for the answer, too (`IterationFinish`).
        ends_jobs: Whether its policy is asked about runs that have trained their jobs to the end; else they end, saved.
        ship_every: Units between two snapshots that go to the store by themselves; 0: only what is left when jobs end.
        forks: Whether its policy is told that slots are idle also when a snapshot that it asked for is there (`AllocateJobs`).
        forks_newest: Whether its policy forks from the newest of the snapshots that it asked for alone: older ones of a job are let go.
        rebuilds: Whether its policy has trained again what it asked to be saved and finds gone: the quota may give that up, too.
        evaluates: Whether a job that has trained to its end waits for its policy to evaluate and complete it.
        requests: Whether its policy serves what clients ask for: each gets a job.
        generator_reads: Which results its generator is told: none, how jobs ended, or their reports as well.
        low: The smallest value that the metric can have; None: not known.
        high: The largest one; None: not known.
        space: For policies: the search space in its written form; None: not known.
        constraints: For policies: the constraints that go with it.
        plan: The root of the search plan that its trainings belong to; empty: its policy shares none.
        lasting: Whether completed jobs keep where others branched off, for later experiments.
        scales: Whether its policy chooses on how many slots a job trains: its demand alone says how many are of use to as many
            jobs as may train at a time.
        training: What its trainings have in common with others that take equally long: what its runs profile is kept under that;
            empty: it is not kept.
        idle: Seconds that it stays open for clients' requests once it has nothing to do (> 0); None: it ends then.
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
    forks_newest: bool = False
    lasting: bool = False
    scales: bool = False
    training: str = ""
    idle: float | None = None
    rebuilds: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """How long a unit took on so many slots of one kind of host, as an earlier experiment measured it."""

    hardware: str
    slots: int
    seconds: float


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


@dataclass(frozen=True, slots=True)
class EarlierTrial:
    """What an earlier experiment has trained of a configuration.

    Attributes:
        name: Its experiment and job: "digits-1f3a/7".
        hyperparameters: Its configuration.
        reports: Its reports by position, those that it has in common with `after` left out.
        after: (name of one before it, position): up to there both have the same reports. None: it has all of its own.
        snapshots: What the store has of it beyond `after`, by position. The new experiment owns them there, too.
    """

    name: str
    hyperparameters: Hyperparameters
    reports: tuple[Report, ...] = ()
    after: tuple[str, int] | None = None
    snapshots: tuple[SnapshotInfo, ...] = ()
