"""Values that events and effects contain: settings, slots, snapshots, placed data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from hopyard.policy.vocabulary import Hyperparameters, Report


class SlotSpec(NamedTuple):
    """A slot as its agent announces it. `hardware` is the kind of host; empty: unknown."""

    id: str
    cpus: int = 1
    gpus: tuple[int, ...] = ()
    hardware: str = ""


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """The policy of a stream when it was created, and the version of its decisions."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A snapshot as reported by the agent that took it. `size` is in bytes."""

    position: int
    sha256: str
    size: int = 0
    provider: str = "framework"

    @property
    def keeps_values(self) -> bool:
        """True if it is a process image (CRIU), which keeps the hyperparameters that the process has in memory."""
        return self.provider == "criu"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of an experiment that the core uses.

    Attributes:
        metric: Name of the metric to optimize.
        mode: Direction in which the metric improves.
        max_position: Position at which a job is complete (>= 1).
        jobs: Number of jobs that may be created (>= 0).
        target: Metric value that ends the experiment when a report reaches it; None: no target.
        target_over: Number of reports (>= 1). The mean of a job's last `target_over` reports must reach the target.
        kill_threshold: Passed to policies; the core does not use it.
        max_seconds: Time in seconds, without pauses, after which the experiment ends and its jobs are suspended; None: no limit.
        max_failures: Maximum number of failures of user code per job (>= 0); one more fails the job.
        max_losses: Maximum number of losses per job without progress in between (>= 0); one more fails the job.
        snapshot_every: Positions between periodic snapshots of a run; 0: no periodic snapshots.
        keep_latest: Number of newest snapshots to keep for each job (>= 1).
        keep_best: Number of snapshots with the best metric to keep for each job (>= 0).
        snapshot_quota: Maximum size in bytes of all snapshots of the experiment (>= 0); None: no limit.
        slots: Maximum number of slots (>= 1); None: no limit.
        concurrency: Maximum number of jobs that train at the same time (>= 1); None: no limit.
        weight: Weight of the experiment in fair sharing (> 0).
        seed: Seed of the policy's random numbers.
        kill_after: Seconds that a terminated run has to reach a boundary before its processes are killed.
        grace: Seconds that the policy has to free slots after its share shrinks.
        cpus: CPU threads that each slot must have (>= 1).
        gpus: GPUs that each slot must have (>= 0).
        statistics: Whether the policy gets an `ApplicationStat` up-call for each report.
        every_iteration: Whether the policy gets an `IterationFinish` up-call for every new report, not only where the run waits for a
            decision.
        ends_jobs: Whether the policy decides what happens to a run that has trained to the end. If False, the run saves and ends by
            itself.
        ship_every: The store gets the snapshots at multiples of this position. 1: a run uploads each snapshot; 0: uploads are
            deferred until a job ends, its experiment pauses or ends, or a node drains.
        forks: Whether a snapshot that the policy requested causes an `AllocateJobs` up-call, so that the policy can fork from it.
        forks_newest: Whether only the newest snapshot that the policy requested of a job is kept for forks.
        rebuilds: Whether the policy retrains a requested snapshot that is missing. If True, the quota may delete such snapshots.
        evaluates: Whether a job that has trained to the end waits until the policy evaluates and completes it.
        requests: Whether the policy serves client requests. If True, the core creates a job for each request.
        generator_reads: Results that the generator receives: none, final results, or also reports.
        low: Lowest possible value of the metric; None: unknown.
        high: Highest possible value of the metric; None: unknown.
        space: The search space as a document, for policies; None: unknown.
        constraints: The constraints of the search space, for policies.
        plan: Key of the search plan that the experiment shares; empty: it shares none.
        lasting: Whether completed jobs keep the snapshots at which other jobs branched off, for later experiments.
        scales: Whether the policy chooses the number of slots of each job. If True, its demand already accounts for `concurrency`.
        training: Key under which profiled times are stored, shared by trainings with equal speed; empty: they are not stored.
        idle: Seconds that the experiment stays open for requests when it has no work (> 0); None: it ends immediately.
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
    """The seconds that one unit of training took on a number of slots of one kind of host, as an earlier experiment measured it."""

    hardware: str
    slots: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PlacedPartition:
    """A partition of an experiment's data and its locations.

    Attributes:
        name: The name that policies use, such as "train/3".
        size: The size in bytes.
        sha256: The hash of its contents.
        examples: The number of examples in it; None: unknown.
        places: The path, or URL, for each live node that has a replica.
        homes: All nodes on which a replica is registered, live or not.
        url: The URL from which every node can read it; empty: none.
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
    """A data set with the locations of its partitions."""

    name: str
    partitions: tuple[PlacedPartition, ...]


@dataclass(frozen=True, slots=True)
class EarlierTrial:
    """The training of a configuration in an earlier experiment.

    Attributes:
        name: The experiment and the job, such as "digits-1f3a/7".
        hyperparameters: The configuration.
        reports: The reports by position, without those shared with `after`.
        after: The name of a preceding trial and the position up to which both have the same reports; None: nothing is shared.
        snapshots: The snapshots in the store beyond `after`, by position. The new experiment also owns them in the store.
    """

    name: str
    hyperparameters: Hyperparameters
    reports: tuple[Report, ...] = ()
    after: tuple[str, int] | None = None
    snapshots: tuple[SnapshotInfo, ...] = ()
