"""What the client answers with: plain frozen values. Wire types stop at `hopyard.client.wire.converters`."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hopyard.policy.vocabulary import ExperimentState, JobState, Report

__all__ = [
    "Change",
    "ClusterAddresses",
    "Download",
    "Experiment",
    "ExperimentState",
    "Exported",
    "Garbage",
    "GarbageKind",
    "Hops",
    "ImportedExperiment",
    "Job",
    "JobGone",
    "JobReport",
    "JobState",
    "KeptForOthers",
    "LogChunk",
    "Metric",
    "Node",
    "NodeState",
    "Point",
    "Report",
    "Slot",
    "Snapshot",
    "Statistic",
    "StoreUse",
]


class NodeState(enum.Enum):
    """Whether a node can be used."""

    UP = "UP"
    DRAINING = "DRAINING"
    LOST = "LOST"


@dataclass(frozen=True, slots=True)
class Metric:
    """What an experiment optimises.

    Attributes:
        name: Its name in the reports.
        mode: Which direction is better.
        target: The experiment ends when a job reaches it; None: no target.
        kill_threshold: A policy may end a job that stays worse; None: none.
        target_over: The target is reached by the mean of a job's last so many reports, at least 1.
    """

    name: str
    mode: Literal["max", "min"] = "max"
    target: float | None = None
    kill_threshold: float | None = None
    target_over: int = 1

    def better(self, left: float, right: float) -> bool:
        """Whether `left` is strictly better than `right`; what is not finite is worse than everything finite."""
        if not math.isfinite(left):
            return False
        if not math.isfinite(right):
            return True
        return left > right if self.mode == "max" else left < right


@dataclass(frozen=True, slots=True)
class Hops:
    """How an experiment's snapshots moved.

    Attributes:
        direct: Runs that got their snapshot from another agent.
        direct_bytes: Bytes of these.
        fetched: Runs that got it from the store.
        fetched_bytes: Bytes of these.
        stored: Snapshots that were brought to the store.
        stored_bytes: Bytes of these.
    """

    direct: int = 0
    direct_bytes: int = 0
    fetched: int = 0
    fetched_bytes: int = 0
    stored: int = 0
    stored_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment.

    Attributes:
        id: Opaque and unique in the cluster.
        name: As in the experiment file.
        state: Where it stands.
        reason: Why it is in this state, in words; empty while it simply runs.
        spec: The whole specification.
        bundle: SHA-256 of its code bundle; empty: none.
        metric: What it optimises.
        created_at: Seconds since the Unix epoch.
        ended_at: The same; None while it has not ended.
        jobs: Number of jobs by the name of their state.
        best_job: The job with the best value so far; None before the first report.
        best_value: That value.
        best_position: The position it was reached at.
        slots: How many it holds.
        share: How many its share gives it.
        running_seconds: Time it was not paused.
        group: The experiment that its group began with; its own id if it is alone.
        warning: What a person should know although it goes on, in words; empty: nothing.
        snapshot_bytes: What its snapshots take.
        hops: How they moved between slots; of a group those of all its experiments.
        slot_seconds: Time of slots that is billed to it: of its own runs, and its part of what it wants together with others of
            its group.
        note: What its policy says of its terms, such as that there are too few jobs for its rungs; only as `create` answers it. Empty:
            nothing.
    """

    id: str
    name: str
    state: ExperimentState
    metric: Metric
    reason: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict)
    bundle: str = ""
    created_at: float = 0.0
    ended_at: float | None = None
    jobs: Mapping[str, int] = field(default_factory=dict)
    best_job: str | None = None
    best_value: float | None = None
    best_position: int = 0
    slots: int = 0
    share: int = 0
    running_seconds: float = 0.0
    group: str = ""
    warning: str = ""
    snapshot_bytes: int = 0
    hops: Hops = Hops()
    slot_seconds: float = 0.0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Training state of a job at a position, named by the SHA-256 of its packed bytes.

    Attributes:
        job: Whose state it is.
        position: Where it was taken.
        sha256: Of the packed bytes, lower-case hex.
        size_bytes: Size of the packed bytes.
        provider: What took it and can load it.
        nodes: The nodes that hold it on their disk.
        stored: Whether the snapshot store holds it.
    """

    job: str
    position: int
    sha256: str
    size_bytes: int = 0
    provider: str = "framework"
    nodes: tuple[str, ...] = ()
    stored: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """A job: the training of one configuration. See `hopyard.v1.Job` for each field's meaning."""

    experiment: str
    id: str
    state: JobState
    reason: str = ""
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    position: int = 0
    attempt: int = 0
    slots: tuple[str, ...] = ()
    priority: float | None = None
    parent: str | None = None
    fork_position: int = 0
    best_value: float | None = None
    best_position: int = 0
    last_value: float | None = None
    seconds: float = 0.0
    failures: int = 0
    suspends: int = 0
    snapshots: tuple[Snapshot, ...] = ()
    group: str = ""
    shared_position: int = 0

    @property
    def reached(self) -> int:
        """How far it is: where it stands itself, or up to where results of others count for it."""
        return max(self.position, self.shared_position)


@dataclass(frozen=True, slots=True)
class JobReport:
    """A report of a job; `at` is when it was made, in seconds since the Unix epoch."""

    job: str
    report: Report
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class JobGone:
    """A job that is no more: the generator had no further configuration for it."""

    job: str


Change = Experiment | Job | JobReport | JobGone
"""What `watch` yields."""


@dataclass(frozen=True, slots=True)
class Statistic:
    """One accepted report as AppStat keeps it; `at` is when it was made, in seconds since the Unix epoch."""

    job: str
    attempt: int
    report: Report
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a job's curve: the experiment's metric at a position.

    Attributes:
        position: How far the job had trained.
        value: The metric; parts of one position are combined, weighted by their examples.
        seconds: Training time of the job up to here.
    """

    position: int
    value: float
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot bundle on a node.

    Attributes:
        id: "node/index".
        experiment: Who holds it; None: nobody.
        job: What runs on it; None: it is idle.
        cpus: CPU threads a training process gets.
        gpus: GPU indices it sees.
        rank: Which of the job's processes runs here, if that is on several slots.
        world: How many slots the job is on.
        hardware: The kind of host that it is of; empty: not known.
    """

    id: str
    node: str
    experiment: str | None = None
    job: str | None = None
    attempt: int = 0
    cpus: int = 0
    gpus: tuple[int, ...] = ()
    rank: int = 0
    world: int = 1
    hardware: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A host with an agent; `silent_seconds` since its last sign of life."""

    id: str
    address: str
    state: NodeState
    slots: tuple[Slot, ...] = ()
    silent_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ClusterAddresses:
    """Where the cluster's services answer.

    Attributes:
        epoch: The scheduler's.
        appstat_address: HOST:PORT of AppStat.
        version: Of the distribution that runs.
        trouble: What keeps the cluster from going on just now; empty: nothing.
        now: The scheduler's clock as it answered, seconds since the Unix epoch; None: it is older and does not say.
    """

    epoch: int
    appstat_address: str
    version: str
    trouble: str = ""
    now: float | None = None


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A piece of a job's output, and the node whose log it is."""

    node: str
    data: bytes
    offset: int


@dataclass(frozen=True, slots=True)
class Download:
    """A downloaded snapshot.

    Attributes:
        folder: Where its files lie.
        job: Whose state it is.
        position: Where it was taken.
        sha256: Of the packed bytes.
        metric: Name of the experiment's metric.
        value: The metric at that position; None: none was reported there.
        best_value: The job's best value; None: it has none.
        best_position: Where that was reported; None: nowhere.
        best_missing: Whether the job has no snapshot at its best position.
    """

    folder: Path
    job: str
    position: int
    sha256: str
    metric: str = ""
    value: float | None = None
    best_value: float | None = None
    best_position: int | None = None
    best_missing: bool = False


@dataclass(frozen=True, slots=True)
class Exported:
    """An experiment, or a group of them, in a file.

    Attributes:
        file: The file.
        experiments: Ids of the experiments in it.
        size_bytes: Its size.
        events: Events of their journal.
        statistics: Their accepted reports.
        snapshots: How many snapshots are in it.
        left_behind: Those that could not be read, or were not wanted: jobs cannot go on from them elsewhere.
    """

    file: Path
    experiments: tuple[str, ...]
    size_bytes: int
    events: int
    statistics: int
    snapshots: int
    left_behind: tuple[Snapshot, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportedExperiment:
    """An experiment from a file, and how many snapshots it has here. Of a group it is the one that the group began with."""

    experiment: Experiment
    snapshots: int


@dataclass(frozen=True, slots=True)
class GarbageKind:
    """Things of one kind in one place that nobody needs.

    Attributes:
        kind: What they are, in words.
        place: "store", or where else they lie.
        count: How many.
        size_bytes: All their bytes.
    """

    kind: str
    place: str
    count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class KeptForOthers:
    """What an experiment keeps in the store for nothing but that others may go on from it, such as branch points of a stage tree.

    Attributes:
        experiment: Its id; of a group, that of the experiment which it began with.
        count: How many snapshots.
        size_bytes: All their bytes.
        seconds_again: Seconds of training, as measured, that would have to be done again to have all of it back.
        given_up: Whether it was deleted, or would be.
    """

    experiment: str
    count: int
    size_bytes: int
    seconds_again: float
    given_up: bool


@dataclass(frozen=True, slots=True)
class StoreUse:
    """What the snapshots of all experiments take in the store, or will when they are there. Equal contents count once.

    Attributes:
        quota_bytes: So many bytes they may take; None: any.
        used_bytes: So many they take.
        needed_bytes: So many of these somebody needs: they are never given up for the quota.
        spare: How many snapshots may be given up.
        spare_seconds: Seconds of training, as measured, that would have to be done again to have all of these back.
        next_bytes: Bytes of the one that would be given up first; 0: there is none.
        next_seconds: Seconds of training to have that one back.
    """

    quota_bytes: int | None
    used_bytes: int
    needed_bytes: int
    spare: int
    spare_seconds: float
    next_bytes: int
    next_seconds: float


@dataclass(frozen=True, slots=True)
class Garbage:
    """What a garbage collection deleted, or would delete.

    Attributes:
        dry_run: Whether nothing was changed.
        found: By kind and place; what there is none of is left out.
        notes: What could not be looked at or was left alone.
        unneeded: Those of the hashes that were asked about that nobody needs.
        kept: What experiments kept for nothing but that others may go on from it.
        store: How full the store is then; None: an older scheduler does not say.
    """

    dry_run: bool
    found: tuple[GarbageKind, ...]
    notes: tuple[str, ...] = ()
    unneeded: tuple[str, ...] = ()
    kept: tuple[KeptForOthers, ...] = ()
    store: StoreUse | None = None
