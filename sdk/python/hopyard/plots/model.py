"""What is plotted: a search, live or simulated, or recorded curves. Plain values, whatever they were read from."""

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
    """Where a search was read from."""

    EXPERIMENT = "live"
    SIMULATION = "simulated"
    TRACES = "traces"


class JobEnd(enum.Enum):
    """How a job ended. What has not ended yet, or is not known to have, is OPEN."""

    COMPLETED = "completed"
    TERMINATED = "terminated"
    FAILED = "failed"
    OPEN = "open"


@dataclass(frozen=True, slots=True, eq=False)
class JobCurve:
    """A job's reports of the metric; the three arrays have one length.

    Attributes:
        job: Whose curve.
        end: How it ended.
        times: Seconds, not falling: since the search began; in traces, of the job's own training.
        positions: How far the job had trained, rising.
        values: The metric; NaN where it was not finite.
        resumed: Indices of the points that are the first of another run: before them the job may have waited.
    """

    job: str
    end: JobEnd
    times: Floats
    positions: Floats
    values: Floats
    resumed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PlottedRun:
    """A run of a job on one slot; of a run on several, one for each.

    Attributes:
        slot: Where.
        job: Whose.
        attempt: Which of the job's runs, from 1.
        start: When it was placed, in seconds since the search began.
        end: When it was over; None: it goes on.
        reason: Why it ended: UNTIL, SUSPENDED, PREEMPTED, LOST, FAILED or TERMINATED; None: it goes on.
        mode: TRAIN, EVALUATE, or PROFILE: it was measured, and what it trained thrown away.
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
    """A run on a partition of an experiment's data: a training unit, or a part of an evaluation.

    Attributes:
        slot: Where.
        node: Where that is.
        job: Whose.
        partition: On what: "train/3".
        evaluates: Whether it only evaluates.
        start: When it was placed, in seconds since the search began.
        began: When its process had loaded its state; None: it never has, or not yet.
        end: When it was over; None: it goes on.
        reason: As that of a `Run`.
        got: Bytes of its snapshot that came from elsewhere; 0: it was there, or there is none.
        from_store: Whether these came from the store, not from another node.
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
    """A partition of an experiment's data: its name, its bytes, and the nodes that hold it (or held it last)."""

    name: str
    bytes: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JournalStory:
    """What an experiment's journal tells of it, in order; times are seconds since the Unix epoch.

    Attributes:
        runs: What ran where.
        pools: (time, promising, opportunistic): jobs with a run from then on, by their labels.
        labels: (time, priority) by job.
        confidences: (time, slots, chances in falling order): what the policy thought of its open jobs now and then.
        visits: What ran on which partition; empty: it has no partitioned data.
        held: Its partitioned data, and who holds them.
        moved: (time, bytes from node to node, from the store, to the store) so far, whenever one of these grew.
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
    """A search. What a source does not tell is None; a plot that needs it says so.

    Attributes:
        where: How a message calls it: `results.json, entry 3`.
        source: What it was read from.
        policy: Name of the policy.
        predictor: Name of the predictor.
        slots: Slots it had.
        order_seed: Which order of configurations.
        traces: What was replayed.
        metric: Name of the metric.
        mode: Which direction is better.
        unit: What a position counts.
        target: What was to be reached.
        time_to_target: Seconds until it was; None: never.
        best: The best value.
        best_job: Who reported it first.
        time: Seconds that the search took, or has taken so far.
        max_position: Where a job is complete.
        curves: The jobs' curves, in order of creation.
        durations: Seconds on slots by job.
        runs: What ran where.
        jobs_at_full: (seconds, jobs that had trained to the end by then), rising.
        pools: (seconds, promising, opportunistic): what the pools had from then on.
        labels: (seconds, priority) by job: what the policy labelled it with from then on. Above 0 it is promising.
        confidences: (seconds, slots, chances in falling order): what the policy gave to its open jobs at these times.
        slots_per_job: k, the slots that a promising job counts for.
        visits: What ran on which partition of its data.
        held: Its partitioned data, and who holds them.
        moved: (seconds, bytes of snapshots from node to node, from the store, to the store) so far, whenever one of these grew.
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
    jobs_at_full: tuple[tuple[float, float], ...] | None = None
    pools: tuple[tuple[float, float, float], ...] | None = None
    labels: Mapping[str, tuple[tuple[float, float], ...]] | None = None
    confidences: tuple[tuple[float, int, tuple[float, ...]], ...] | None = None
    slots_per_job: int = 1
    visits: tuple[PlottedVisit, ...] | None = None
    held: tuple[PartitionReplicas, ...] | None = None
    moved: tuple[tuple[float, int, int, int], ...] | None = None
