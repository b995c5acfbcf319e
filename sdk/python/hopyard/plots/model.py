"""The input of all plots: a live search, a simulated one, or traces (recorded learning curves), in the same classes for all."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hopyard.policy.vocabulary import RunMode

Floats: TypeAlias = NDArray[np.float64]


class SearchSource(enum.Enum):
    """The kind of source of a search: an experiment of a cluster (live), a simulation (simulated), or traces."""

    EXPERIMENT = "live"
    SIMULATION = "simulated"
    TRACES = "traces"


class JobEnd(enum.Enum):
    """How a job ended: its final state COMPLETED, TERMINATED or FAILED; STOPPED: its experiment ended before it was trained to its end.

    OPEN: it has not ended, or its end is unknown.
    """

    COMPLETED = "completed"
    STOPPED = "stopped"
    TERMINATED = "terminated"
    FAILED = "failed"
    OPEN = "open"


@dataclass(frozen=True, slots=True, eq=False)
class JobCurve:
    """The learning curve of one job: the values of the metric in its reports. `times`, `positions` and `values` have the same length.

    Attributes:
        job: Id of the job.
        end: How the job ended.
        times: Time of each report in seconds, never falling. They count from the start of the search; in traces, they are the training
            time of the job.
        positions: Position of each report, strictly rising.
        values: Metric of each report; NaN if it was not finite.
        resumed: Indices of points that are the first ones of a new run. The job may have waited between such a point and the one
            before.
    """

    job: str
    end: JobEnd
    times: Floats
    positions: Floats
    values: Floats
    resumed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PlottedRun:
    """A run of a job on one slot. A run on several slots is represented by one instance per slot.

    Attributes:
        slot: Id of the slot.
        job: Id of the job.
        attempt: Number of the run within the job, from 1.
        start: When the run was placed on the slot, in seconds since the search began.
        end: When the run ended, on the same clock; None: it has not ended.
        reason: Why the run ended: UNTIL, SUSPENDED, PREEMPTED, LOST, FAILED or TERMINATED; None: it has not ended, or the reason is
            unknown.
        mode: TRAIN, EVALUATE or PROFILE. A PROFILE run only measures the speed of training; its training is discarded.
    """

    slot: str
    job: str
    attempt: int
    start: float
    end: float | None = None
    reason: str | None = None
    mode: str = RunMode.TRAIN.value


@dataclass(frozen=True, slots=True)
class PlottedVisit:
    """A visit: a run of a job on one partition of an experiment's data, either a training unit or a part of an evaluation.

    Attributes:
        slot: Id of the slot.
        node: Name of the slot's node.
        job: Id of the job.
        partition: Name of the partition, such as "train/3".
        evaluates: True: the run evaluates the model. False: it trains it.
        start: When the run was placed on the slot, in seconds since the search began.
        began: When its process had started and loaded the job's state, on the same clock; None: this has not happened.
        end: When the run ended, on the same clock; None: it has not ended.
        reason: Why the run ended, as in `PlottedRun.reason`.
        got: Bytes of the job's snapshot that were transferred to the node for this run; 0: the node had the snapshot, or there is none.
        from_store: Whether these bytes came from the store; otherwise they came from another node.
    """

    slot: str
    node: str
    job: str
    partition: str
    evaluates: bool
    start: float
    began: float | None = None
    end: float | None = None
    reason: str | None = None
    got: int = 0
    from_store: bool = False


@dataclass(frozen=True, slots=True)
class PartitionReplicas:
    """A partition of an experiment's data.

    Attributes:
        name: Name of the partition.
        bytes: Size of the partition in bytes.
        nodes: Nodes that have a replica; if none has one now, the last nodes that had one.
    """

    name: str
    bytes: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JournalStory:
    """The history of an experiment, from its journal. Lists of events, such as runs, are ordered by time.

    Times, also those in runs and visits, are seconds since the Unix epoch.

    Attributes:
        runs: The runs of its jobs.
        pools: Tuples (time, number of slots of promising jobs, number of slots of other jobs), one for each change.
        labels: For each labelled job, pairs (time, priority): each label that the policy gave to it. A priority above 0 means
            promising.
        confidences: Tuples (time, number of slots, confidences in descending order), recorded after every n-th event of the journal:
            the policy's estimates of the probability that a job reaches the target, for each job that has not ended.
        visits: The runs on partitions of its data; empty without partitioned data.
        held: The partitions of its data with the nodes that have them.
        moved: Tuples (time, bytes from node to node, bytes from the store, bytes to the store): totals of transferred snapshots at each
            time at which one of them grew.
    """

    runs: list[PlottedRun] = field(default_factory=list)
    pools: list[tuple[float, float, float]] = field(default_factory=list)
    labels: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    confidences: list[tuple[float, int, tuple[float, ...]]] = field(default_factory=list)
    visits: list[PlottedVisit] = field(default_factory=list)
    held: list[PartitionReplicas] = field(default_factory=list)
    moved: list[tuple[float, int, int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Search:
    """A search to plot. A field is None if the source does not contain it; a plot that needs such a field raises an error.

    Times count in seconds from the start of the search.

    Attributes:
        where: Source of the search in messages, such as `results.json, entry 3`.
        source: Kind of the source.
        policy: Name of the policy.
        predictor: Name of the predictor.
        slots: Number of slots of the search.
        order_seed: Seed of the order in which configurations were started.
        traces: Paths of the traces that a simulation replayed.
        metric: Name of the metric.
        mode: Whether high ("max") or low ("min") values of the metric are better.
        unit: What one position is, such as an epoch.
        target: The value of the metric that ends the search.
        time_to_target: Time until a job reached the target; None: none did, or the search has no target.
        best: The best value of the metric.
        best_job: Id of the first job that reported the best value.
        time: Duration of the search, so far if it has not ended.
        max_position: The position at which a job is complete.
        curves: The learning curves of the jobs, in order of creation.
        durations: Seconds that each job spent on slots, by its id.
        runs: The runs of the jobs.
        completed_jobs: Pairs (time, number of jobs that reached `max_position` until then), ordered by time.
        pools: Tuples (time, number of slots of promising jobs, number of slots of opportunistic jobs), ordered by time.
        labels: For each labelled job, pairs (time, priority): each label that the policy gave to it. A priority above 0 means
            promising.
        confidences: Tuples (time, number of slots, confidences in descending order): the policy's estimates at that time of the
            probability that a job reaches the target, for each job that has not ended.
        slots_per_job: k, the number of slots that one promising job would use.
        visits: The runs on partitions of its data.
        held: The partitions of its data with the nodes that have them.
        moved: Tuples (time, bytes from node to node, bytes from the store, bytes to the store): totals of transferred snapshots at each
            time at which one of them grew.
    """

    where: str
    source: SearchSource
    policy: str | None = None
    predictor: str | None = None
    slots: int | None = None
    order_seed: int | None = None
    traces: tuple[str, ...] = ()
    metric: str = "metric"
    mode: Literal["max", "min"] | None = None
    unit: str | None = None
    target: float | None = None
    time_to_target: float | None = None
    best: float | None = None
    best_job: str | None = None
    time: float | None = None
    max_position: int | None = None
    curves: tuple[JobCurve, ...] | None = None
    durations: Mapping[str, float] | None = None
    runs: tuple[PlottedRun, ...] | None = None
    completed_jobs: tuple[tuple[float, float], ...] | None = None
    pools: tuple[tuple[float, float, float], ...] | None = None
    labels: Mapping[str, tuple[tuple[float, float], ...]] | None = None
    confidences: tuple[tuple[float, int, tuple[float, ...]], ...] | None = None
    slots_per_job: int = 1
    visits: tuple[PlottedVisit, ...] | None = None
    held: tuple[PartitionReplicas, ...] | None = None
    moved: tuple[tuple[float, int, int, int], ...] | None = None
