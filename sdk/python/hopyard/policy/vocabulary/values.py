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
    """The state of an experiment. The engine has a table of the allowed transitions.

    Each member has an attribute besides its value.

    Attributes:
        ended: Whether the state is COMPLETED, STOPPED or FAILED: the experiment has no slots and no running
            jobs. If it is extended, its state is RUNNING again.
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
    """The state of a job. The engine has a table of the allowed transitions.

    A job is HELD while a user has paused it. A policy must ignore it until it is idle again: commands to start or end
    it are refused.

    Each member has attributes besides its value.

    Attributes:
        idle: Whether the job waits for a slot (PENDING, SUSPENDED).
        live: Whether a run of the job has slots (STARTING, RUNNING, SUSPENDING).
        ended: Whether the job will never run again (COMPLETED, TERMINATED, FAILED).
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
    """The purpose of a run: TRAIN the job, EVALUATE one of its snapshots, or measure how long an iteration takes (PROFILE).

    PROFILE trains a temporary copy on as much of its input as necessary to measure an iteration. The run's only report
    contains the time as the metric `seconds`. It is passed to `Policy.on_profile` and recorded nowhere else. A failure
    has no effect on the job.
    """

    TRAIN = "TRAIN"
    EVALUATE = "EVALUATE"
    PROFILE = "PROFILE"


class RunKey(NamedTuple):
    """The identity of one process of one run. Each key has its own channel; messages of older attempts are refused.

    Attributes:
        stream: The id of the journal stream of the job's experiment.
        job: The id of the job.
        attempt: The number of the run within its job.
        rank: The number of the process in its gang, from 0.
    """

    stream: StreamId
    job: str
    attempt: int
    rank: int = 0

    def __str__(self) -> str:
        rank = f" rank {self.rank}" if self.rank else ""
        return f"run {self.attempt} of job {self.job} of experiment {self.stream}{rank}"


class RunEndReason(enum.Enum):
    """How a run ended.

    UNTIL: it reached its `until` position and saved. SUSPENDED: the policy or a user suspended it. PREEMPTED: the engine
    took its slots. LOST: its node or process was lost. FAILED: the training failed. TERMINATED: its job was ended.
    """

    UNTIL = "UNTIL"
    SUSPENDED = "SUSPENDED"
    PREEMPTED = "PREEMPTED"
    LOST = "LOST"
    FAILED = "FAILED"
    TERMINATED = "TERMINATED"


class DecisionKind(enum.Enum):
    """The kinds of decisions on a run at a boundary; see `Decision`."""

    CONTINUE = "CONTINUE"
    SUSPEND = "SUSPEND"
    TERMINATE = "TERMINATE"
    PARK = "PARK"


@dataclass(frozen=True, slots=True)
class Decision:
    """A policy's decision on a run that finished an iteration.

    - CONTINUE: train on. At the run's `until` position it saves and ends the run with reason UNTIL, unless `amend_run`
      in the same answer moves `until`.
    - SUSPEND: save, and release the slots.
    - TERMINATE: end the job without saving.
    - PARK: stay in memory with its slots until an `amend_run`, `suspend_job` or `terminate_job`; only at `until`.

    Attributes:
        kind: What the run does.
        up_to: With CONTINUE, the new `allowed` position of the run: reports below it need no decision. None: `allowed` is
            unchanged, so if this report needed a decision, the next one does, too.
    """

    kind: DecisionKind
    up_to: int | None = None

    @classmethod
    def proceed(cls, up_to: int | None = None) -> Decision:
        """Return a CONTINUE decision.

        Args:
            up_to: The position below which reports need no decision; None: unchanged, so if this report needed one, the
                next one does, too.
        """
        return cls(DecisionKind.CONTINUE, up_to)


CONTINUE = Decision(DecisionKind.CONTINUE)
SUSPEND = Decision(DecisionKind.SUSPEND)
TERMINATE = Decision(DecisionKind.TERMINATE)
PARK = Decision(DecisionKind.PARK)


@dataclass(frozen=True, slots=True)
class Report:
    """One report of a run: its measurements at a position.

    Attributes:
        position: The job's position at the report (>= 0).
        metrics: The values of the metrics by name. NaN and infinite values are allowed.
        seconds: Elapsed seconds of training since the run's previous report.
        part: In an evaluation that is divided among several runs (parts), the name of this run's partition; empty: all data.
        examples: Number of examples behind the metrics, the weight when parts are combined (0 has the weight 1).
        at_until: Whether the run has reached its `until` position and waits for a decision.
        finished: Whether the training process has nothing left to train. The job is then complete.
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
    """One partition of an experiment's data, and the nodes that have it.

    Attributes:
        name: The partition's name in a run's `inputs`, from its split and number, such as "train/3" or "eval/0".
        examples: Number of its examples; None: unknown.
        bytes: Its size in bytes.
        nodes: The live nodes that have it now, ordered by name; empty: no node can train on it.
        anywhere: Whether every other node can fetch it when it first needs it; False: only `nodes` can train on it.
    """

    name: str
    examples: int | None = None
    bytes: int = 0
    nodes: tuple[str, ...] = ()
    anywhere: bool = False


@dataclass(frozen=True, slots=True)
class Data:
    """The partitioned data of an experiment. The nodes that have a partition can change; the partitions cannot.

    Attributes:
        name: The name of the data set.
        train: The training partitions, ordered by number.
        evaluate: The evaluation partitions, ordered by number.
    """

    name: str
    train: tuple[Partition, ...]
    evaluate: tuple[Partition, ...] = ()
