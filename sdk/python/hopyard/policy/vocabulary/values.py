"""The states of jobs and runs, reports, decisions, and the data of an experiment."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NewType

ENDLESS: Final = 2**31 - 1
"""A max position, or a number of jobs, that means no limit."""

Metrics = Mapping[str, float]
Hyperparameters = Mapping[str, Any]


StreamId = NewType("StreamId", str)
"""Identifies a stream: the id of its first experiment. Two streams never have the same id."""

ExperimentId = NewType("ExperimentId", str)
"""Identifies an experiment in the cluster."""


class ExperimentState(enum.Enum):
    """The state of an experiment. The core has a table of the legal transitions.

    Attributes:
        ended: Whether the experiment has no slots and no running jobs until it is extended.
    """

    ended: bool

    RUNNING = "RUNNING"
    PAUSING = "PAUSING"
    PAUSED = "PAUSED"
    ENDING = "ENDING"
    COMPLETED = "COMPLETED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"

    def __init__(self, name: str) -> None:
        self.ended = name in ("COMPLETED", "STOPPED", "FAILED")


class JobState(enum.Enum):
    """The state of a job. The core has a table of the legal transitions.

    A user has paused a job in the state HELD. A policy must ignore it until it is idle again: starting or ending it is
    refused.

    Attributes:
        idle: Whether the job waits for a slot.
        live: Whether a run of the job holds slots.
        ended: Whether the job will never run again.
    """

    idle: bool
    live: bool
    ended: bool

    CREATING = "CREATING"
    PENDING = "PENDING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    SUSPENDING = "SUSPENDING"
    SUSPENDED = "SUSPENDED"
    HELD = "HELD"
    COMPLETED = "COMPLETED"
    TERMINATED = "TERMINATED"
    FAILED = "FAILED"

    # Jobs are counted by state very often, and the hash of Enum is many times slower. Nothing depends on the hash
    # value.
    __hash__ = object.__hash__

    def __init__(self, name: str) -> None:
        self.idle = name in ("PENDING", "SUSPENDED")
        self.live = name in ("STARTING", "RUNNING", "SUSPENDING")
        self.ended = name in ("COMPLETED", "TERMINATED", "FAILED")


class RunMode(enum.Enum):
    """The mode of a run: train and advance the job, evaluate a snapshot, or measure how long an iteration takes.

    PROFILE trains a temporary copy on as much of its input as necessary to measure an iteration. The run's only report
    contains the time as the metric `seconds`. It is passed to `Policy.on_profile` and recorded nowhere else. A failure
    has no effect on the job.
    """

    TRAIN = "TRAIN"
    EVALUATE = "EVALUATE"
    PROFILE = "PROFILE"


class RunKey(NamedTuple):
    """The identity of one process of one attempt of one job. Each key has a channel; messages of older attempts are refused.

    `stream` is the journal stream of its experiment, named after the first experiment of the stream.
    """

    stream: StreamId
    job: str
    attempt: int
    rank: int = 0

    def __str__(self) -> str:
        rank = f" rank {self.rank}" if self.rank else ""
        return f"run {self.attempt} of job {self.job} of experiment {self.stream}{rank}"


class RunEndReason(enum.Enum):
    """The reason for the end of a run."""

    UNTIL = "UNTIL"
    SUSPENDED = "SUSPENDED"
    PREEMPTED = "PREEMPTED"
    LOST = "LOST"
    FAILED = "FAILED"
    TERMINATED = "TERMINATED"


class DecisionKind(enum.Enum):
    """The possible decisions at a boundary."""

    CONTINUE = "CONTINUE"
    SUSPEND = "SUSPEND"
    TERMINATE = "TERMINATE"
    PARK = "PARK"


@dataclass(frozen=True, slots=True)
class Decision:
    """A policy's decision on a run that finished an iteration.

    CONTINUE trains on; with `up_to`, no decision is needed before that position. At the run's `until`, CONTINUE ends
    the run with reason UNTIL, unless `amend_run` in the same answer moves `until`. PARK is allowed only at `until`: the
    run stays in memory with its lease until an `amend_run`, `suspend_job` or `terminate_job`.
    """

    kind: DecisionKind
    up_to: int | None = None

    @classmethod
    def proceed(cls, up_to: int | None = None) -> Decision:
        """Return a decision to train on. See `CONTINUE`."""
        return cls(DecisionKind.CONTINUE, up_to)


CONTINUE = Decision(DecisionKind.CONTINUE)
SUSPEND = Decision(DecisionKind.SUSPEND)
TERMINATE = Decision(DecisionKind.TERMINATE)
PARK = Decision(DecisionKind.PARK)


@dataclass(frozen=True, slots=True)
class Report:
    """One report of a run: its measurements at a position.

    Attributes:
        position: The job's progress in units (>= 0).
        metrics: Doubles by name. NaN and infinite values are allowed.
        seconds: Wall seconds of training since the run's previous report.
        part: Input partition of an evaluation in parts; empty: all data.
        examples: Number of examples behind the metrics, which is the weight of the part (0 counts as 1).
        at_until: The run has reached its `until` and is parked.
        finished: The training process has nothing left to train. The job is then complete.
    """

    position: int
    metrics: Metrics
    seconds: float = 0.0
    part: str = ""
    examples: int = 0
    at_until: bool = False
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of an experiment's data, and the nodes that hold it.

    Attributes:
        name: Its name in a run's `inputs`, from its split and number, such as "train/3" or "eval/0".
        examples: Number of its examples; None: unknown.
        bytes: Its size.
        nodes: The live nodes that hold it now, ordered by name; empty: no node can train on it.
        anywhere: Whether every other node can fetch it when it first needs it.
    """

    name: str
    examples: int | None = None
    bytes: int = 0
    nodes: tuple[str, ...] = ()
    anywhere: bool = False


@dataclass(frozen=True, slots=True)
class Data:
    """The partitioned data of an experiment: training and evaluation partitions, each ordered by number.

    The nodes that hold a partition can change; the partitions cannot.
    """

    name: str
    train: tuple[Partition, ...]
    evaluate: tuple[Partition, ...] = ()
