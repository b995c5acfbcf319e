"""Values that events and effects contain: settings, slots, snapshots, placed data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from hopyard.policy.vocabulary import Hyperparameters, Report


class SlotSpec(NamedTuple):
    """The description of a slot by its agent.

    Attributes:
        id: Id of the slot, unique in the cluster.
        cpus: Number of CPU threads.
        gpus: Indices of the GPUs on the node.
        hardware: Kind of host; empty: unknown.
    """

    id: str
    cpus: int = 1
    gpus: tuple[int, ...] = ()
    hardware: str = ""


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """The policy that a stream had when it was created.

    Attributes:
        name: Name of the policy.
        version: Version of its decisions, which changes when the same up-calls lead to other decisions.
    """

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """The description of a snapshot by the agent that took it.

    Attributes:
        position: Position at which it was taken.
        sha256: Hash of its contents.
        size: Size in bytes.
        provider: What saved it: "framework" (the training program) or "criu" (an image of the process).
    """

    position: int
    sha256: str
    size: int = 0
    provider: str = "framework"

    @property
    def keeps_values(self) -> bool:
        """Whether the snapshot is a process image (CRIU), which restores the hyperparameters that the process had in memory."""
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
        target_over: Number of a job's last reports (>= 1) whose mean must reach the target.
        kill_threshold: A metric value; a policy may end a job whose reports stay worse than it. None: no such value. The core does not
            use it.
        max_seconds: Running time in seconds, without pauses, after which the experiment ends; None: no limit.
        max_failures: Maximum number of failed runs per job (>= 0); one more fails the job.
        max_losses: Maximum number of successive lost runs of a job without a new report (>= 0); one more fails the job.
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
        statistics: Whether the policy gets an `ApplicationStat` up-call for each new report.
        every_iteration: Whether the policy gets an `IterationFinish` up-call for every new report, not only where the run waits for a
            decision.
        ends_jobs: Whether the policy decides what happens to a run that has trained to the end. If False, the run saves and ends
            without a decision.
        ship_every: The store gets the snapshots at multiples of this number of positions. 1: a run uploads each snapshot; 0: uploads
            are deferred until a job ends, its experiment pauses or ends, or a node drains.
        forks: Whether a snapshot that the policy requested causes an `AllocateJobs` up-call, so that the policy can fork from it.
        forks_newest: Whether, of the snapshots of a job that the policy requested, only the newest is kept for forks.
        rebuilds: Whether the policy retrains a requested snapshot that is missing. If True, requested snapshots may be deleted when the
            quota is exceeded.
        evaluates: Whether a job that has trained to the end waits until the policy evaluates and completes it.
        requests: Whether the policy serves client requests. If True, the core creates a job for each request.
        generator_reads: Results that the generator receives: "nothing", "finals" (final results), or "reports" (also reports).
        low: Lowest possible value of the metric; None: unknown.
        high: Highest possible value of the metric; None: unknown.
        space: The search space as a document, for policies; None: unknown.
        constraints: The constraints of the search space, for policies.
        plan: Key of the search plan that the experiment shares with others; empty: none.
        lasting: Whether completed jobs keep the snapshots that the policy requested, for later experiments.
        scales: Whether the policy chooses the number of slots of each job. If True, its demand already accounts for `concurrency`.
        training: Key under which profiled times are stored. Trainings with equal speed have the same key. Empty: they are not stored.
        metric_every: Number of successive reports (>= 1) of which at least one contains the metric. If no job has reported the metric
            and one has reported so often, the experiment is paused.
        keeps_failed: Whether failed jobs keep their snapshots as completed ones do, so that a person can retry them from there.
        displaced_first: Whether jobs that lost their slots without a decision of the policy come first in the idle queue
            (`Job.displaced`). False in experiments that were created before this setting existed.
        idle: Seconds (> 0) for which the experiment waits for requests of clients when all its work is done, before it ends; None: it
            ends immediately.
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
    keeps_failed: bool = False
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
    metric_every: int = 1
    displaced_first: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """A measured training time of an earlier experiment.

    Attributes:
        hardware: Kind of host.
        slots: Number of slots of the run.
        seconds: Seconds that one iteration took.
    """

    hardware: str
    slots: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PlacedPartition:
    """A partition of an experiment's data set and its locations.

    Attributes:
        name: The name that policies use, such as "train/3".
        size: Size in bytes.
        sha256: Hash of its contents.
        examples: Number of examples in it; None: unknown.
        places: The path, or URL, of the replica on each live node that has one, by node name.
        homes: Names of all nodes on which a replica is registered, live or not.
        url: The URL from which every node can read the partition; empty: none.
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
    """A data set with the locations of its partitions.

    Attributes:
        name: Name of the data set.
        partitions: Its partitions.
    """

    name: str
    partitions: tuple[PlacedPartition, ...]


@dataclass(frozen=True, slots=True)
class EarlierTrial:
    """The training of a configuration in an earlier experiment.

    Attributes:
        name: The experiment and the job, such as "digits-1f3a/7".
        hyperparameters: The configuration.
        reports: The reports by position, ascending, without those shared with the trial in `after`.
        after: Name of a preceding trial, and the position up to which both have the same reports; None: nothing is shared.
        snapshots: The snapshots in the store at positions above the shared ones, by position. The new experiment becomes an owner of
            them in the store.
    """

    name: str
    hyperparameters: Hyperparameters
    reports: tuple[Report, ...] = ()
    after: tuple[str, int] | None = None
    snapshots: tuple[SnapshotInfo, ...] = ()
