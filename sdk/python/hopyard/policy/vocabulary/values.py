"""Where jobs and runs stand, what runs report and what is decided on them; the data of an experiment."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

ENDLESS: Final = 2**31 - 1
"""A max position, or a number of jobs, that stands for no limit."""

Metrics = Mapping[str, float]
Hyperparameters = Mapping[str, Any]


class JobState(enum.Enum):
    """Where a job stands. The legal changes between the states are a table in the core.

    A HELD job was paused by a person. To a policy it is not there until it is idle again: starting or ending it is refused.

    Attributes:
        idle: Whether the job waits for a machine.
        live: Whether a run of the job holds machines.
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

    # Jobs are counted by state all the time, and an enumeration's own hash is many times slower; nothing rests on its value.
    __hash__ = object.__hash__

    def __init__(self, name: str) -> None:
        self.idle = name in ("PENDING", "SUSPENDED")
        self.live = name in ("STARTING", "RUNNING", "SUSPENDING")
        self.ended = name in ("COMPLETED", "TERMINATED", "FAILED")


class RunMode(enum.Enum):
    """What a run does: train and advance the job, evaluate a snapshot and change nothing, or train a little to see how long it takes.

    PROFILE trains a copy that is thrown away, on as much of its input as tells how long an iteration takes. The run's only report has
    that as the metric `seconds`, goes to `Policy.on_profile`, and is recorded nowhere else. If it fails, that costs the job nothing.
    """

    TRAIN = "TRAIN"
    EVALUATE = "EVALUATE"
    PROFILE = "PROFILE"


class RunEndReason(enum.Enum):
    """Why a run ended."""

    UNTIL = "UNTIL"
    SUSPENDED = "SUSPENDED"
    PREEMPTED = "PREEMPTED"
    LOST = "LOST"
    FAILED = "FAILED"
    TERMINATED = "TERMINATED"


class DecisionKind(enum.Enum):
    """What a run shall do at a boundary."""

    CONTINUE = "CONTINUE"
    SUSPEND = "SUSPEND"
    TERMINATE = "TERMINATE"
    PARK = "PARK"


@dataclass(frozen=True, slots=True)
class Decision:
    """A policy's decision on a run that finished an iteration.

    CONTINUE trains on; with `up_to` no decision is needed before that position. At the run's `until`, if that was not moved
    by `amend_run` in the same answer, CONTINUE ends the run with reason UNTIL. PARK is legal at `until` only: the run stays in
    memory with its lease until an `amend_run`, `suspend_job` or `terminate_job` reaches it.
    """

    kind: DecisionKind
    up_to: int | None = None

    @classmethod
    def proceed(cls, up_to: int | None = None) -> Decision:
        """Train on; see `CONTINUE`."""
        return cls(DecisionKind.CONTINUE, up_to)


CONTINUE = Decision(DecisionKind.CONTINUE)
SUSPEND = Decision(DecisionKind.SUSPEND)
TERMINATE = Decision(DecisionKind.TERMINATE)
PARK = Decision(DecisionKind.PARK)


@dataclass(frozen=True, slots=True)
class Report:
    """One report of a run: what it measured at a position.

    Attributes:
        position: How far the job has trained, in units (>= 0).
        metrics: Doubles by name; NaN and infinities are legal.
        seconds: Wall seconds of training since the run's previous report.
        part: Input partition of an evaluation by parts; empty: the whole.
        examples: Examples behind the metrics: the weight of the part (0 counts as 1).
        at_until: The run has reached its `until` and is parked.
        finished: The training process has nothing more to train; the job completes here.
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
    """One partition of an experiment's data, and who holds it.

    Attributes:
        name: What a run's `inputs` call it: its split and number, such as "train/3" or "eval/0".
        examples: How many examples it has; None: not known.
        bytes: Its size.
        nodes: The live nodes that hold it now, in order of name; empty: nobody can train on it.
        anywhere: Whether every other node can get it when it first needs it.
    """

    name: str
    examples: int | None = None
    bytes: int = 0
    nodes: tuple[str, ...] = ()
    anywhere: bool = False


@dataclass(frozen=True, slots=True)
class Data:
    """The partitioned data of an experiment: what is trained on and what is evaluated on, each in order of number.

    Which nodes hold a partition changes; the partitions themselves never do.
    """

    name: str
    train: tuple[Partition, ...]
    evaluate: tuple[Partition, ...] = ()
