"""What AppStat keeps, as plain values: wire types stop at the servicer, table rows at the queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from hopyard.policy.vocabulary import Report

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """One event of a stream, at its position (1, 2, 3, ... within the stream)."""

    stream: str
    position: int
    at: float
    kind: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class ExperimentRow:
    """An experiment as it stands; replaces the row with the same id."""

    id: str
    name: str
    state: str
    created_at: float = 0.0
    ended_at: float = 0.0
    detail_json: str = ""


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as it stands; replaces the row with the same (experiment, id)."""

    experiment: str
    id: str
    ordinal: int
    state: str
    detail_json: str = ""


@dataclass(frozen=True, slots=True)
class StatisticRecord:
    """One accepted report, keyed (experiment, job, position, part); the first with a key is kept.

    Attributes:
        experiment: Id of the experiment.
        job: Id of the job.
        attempt: The attempt that reported it first.
        report: What was reported.
        at: When the training process reported, in seconds since the epoch.
        in_force: The hyperparameters in force, if the report echoed them.
    """

    experiment: str
    job: str
    attempt: int
    report: Report
    at: float = 0.0
    in_force: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class StretchRecord:
    """A trial's stretch of a node of the search plan: from the node's `start` (exclusive) up to `end`.

    Attributes:
        node: The node's key.
        parent: Its parent's; empty: the root.
        values_json: What is in force at `start`.
    """

    node: str
    parent: str
    start: int
    end: int
    values_json: str = "{}"


@dataclass(frozen=True, slots=True)
class PlanSnapshot:
    """A snapshot of a trial that was brought to the store, where `owner` owns it."""

    position: int
    sha256: str
    size_bytes: int
    provider: str
    owner: str


@dataclass(frozen=True, slots=True)
class PlanTrial:
    """A trial's way through the search plan; replaces the one with the same (experiment, job). Snapshots are added."""

    experiment: str
    job: str
    root: str
    path: tuple[StretchRecord, ...]
    snapshots: tuple[PlanSnapshot, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A node of the search plan.

    Attributes:
        key: A hash of what it trains, and of all before it.
        root: What the trainings of its plan have in common.
        parent: The key of the node that it branches off; empty: it begins where training begins.
        start: Where.
        values_json: What is in force there.
        references: Trials that pass through it.
        wanted: The farthest position in it that a trial is to get to.
        reached: The farthest with a result; `start` for none.
        report_seconds: Seconds from one report to the next, on average; 0: there is none.
    """

    key: str
    root: str
    parent: str
    start: int
    values_json: str
    references: int = 0
    wanted: int = 0
    reached: int = 0
    report_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeDetails:
    """A node of the search plan, and who passes through it up to where; the snapshots that the store has of it."""

    node: PlanNode
    references: tuple[tuple[str, str, int], ...]
    snapshots: tuple[PlanSnapshot, ...]


@dataclass(frozen=True, slots=True)
class ScalingRecord:
    """How long a unit took on several machines; replaces what was measured before of the same (training, hardware, machines).

    Attributes:
        training: What trainings that take equally long have in common.
        hardware: The kind of host that all these machines are of.
        machines: How many they were.
        seconds: What a unit took.
        experiment: Whose job was profiled.
        job: Which one.
        at: When, in seconds since the epoch.
    """

    training: str
    hardware: str
    machines: int
    seconds: float
    experiment: str
    job: str
    at: float


Projection = ExperimentRow | JobRow | StatisticRecord | PlanTrial | ScalingRecord


@dataclass(frozen=True, slots=True)
class Append:
    """Records and what follows from them: all or none."""

    epoch: int
    records: tuple[JournalRecord, ...]
    projections: tuple[Projection, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream and the position of its last record."""

    stream: str
    length: int


@dataclass(frozen=True, slots=True)
class BlobRow:
    """A blob that somebody owns.

    Attributes:
        sha256: Its hash.
        size_bytes: Its size.
        wanted_at: When it was put, or asked for by an owner, last: seconds since the epoch.
        owners: Who needs it.
    """

    sha256: str
    size_bytes: int
    wanted_at: float
    owners: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A part of a data set.

    Attributes:
        name: Its split and number, such as "train/3".
        size_bytes: Its bytes.
        sha256: Their hash.
        examples: How many it has; None: not known.
        url: Where nodes get it from; empty: it lies on nodes only.
        replicas: Which node has it at which path.
    """

    name: str
    size_bytes: int
    sha256: str
    examples: int | None = None
    url: str = ""
    replicas: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class DataSetRecord:
    """A data set of the partition catalog, and the request that registered it."""

    name: str
    request_id: str
    registered_at: float
    partitions: tuple[PartitionRecord, ...]


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep found that no index knows.

    Attributes:
        partials: Files that uploads have left.
        partial_bytes: Their bytes.
        unknown: Blobs that the index does not know.
        unknown_bytes: Their bytes.
        unknown_kept: Whether those were left alone, because the store may be others' too.
    """

    partials: int = 0
    partial_bytes: int = 0
    unknown: int = 0
    unknown_bytes: int = 0
    unknown_kept: bool = False


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list, and the token that asks for the next part; empty at the end."""

    items: tuple[T, ...]
    next_token: str = ""
