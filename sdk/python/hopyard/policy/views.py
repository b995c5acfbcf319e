"""The data that a policy sees at an up-call: jobs, slots, experiments, curves and the best result."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from typing import Literal

from hopyard.policy.vocabulary import Hyperparameters, JobState, Metrics
from hopyard.space import Space


@dataclass(frozen=True, slots=True)
class JobView:
    """A job at the moment of the up-call.

    Attributes:
        id: The job's id, unique in its experiment or group.
        state: The state of the job.
        hyperparameters: The job's configuration; empty while CREATING.
        position: The position that its current run has reached; without a run, that from which the job would continue.
        high_water: The highest position that the job ever reported.
        attempt: Number of runs so far.
        slots: Ids of the slots of its current run; empty without a run.
        priority: The job's priority (`label_job`); None if it was not set, which is equal to 0.
        parent: The id of the job from which it was forked; empty: it was not forked.
        fork_position: The position at which it was forked; 0 if it was not forked.
        parked: Whether its run waits in memory at its `until` position.
        ordinal: The number of the job in order of creation, starting with 1.
        experiment: The id of its experiment, which is one of `Cluster.experiments`.
        max_position: The position at which the job is complete.
        displaced: Whether the job lost its slots without a decision of the policy (by a pause, a preemption, or with a node) and
            has not started since. Displaced jobs come first among the idle jobs of equal priority.
    """

    id: str
    state: JobState
    hyperparameters: Hyperparameters = field(default_factory=dict)
    position: int = 0
    high_water: int = 0
    attempt: int = 0
    slots: tuple[str, ...] = ()
    priority: float | None = None
    parent: str = ""
    fork_position: int = 0
    parked: bool = False
    ordinal: int = 0
    experiment: str = ""
    max_position: int = 0
    displaced: bool = False


@dataclass(frozen=True, slots=True)
class SlotView:
    """A slot of the experiment at the moment of the up-call.

    Attributes:
        id: The slot's id, "NODE/INDEX".
        node: The name of the slot's node.
        job: The id of the job that has a run on it; empty: none.
        hardware: The kind of its host. Training takes equally long on hosts of the same kind. Empty: unknown.
    """

    id: str
    node: str
    job: str = ""
    hardware: str = ""

    @property
    def idle(self) -> bool:
        """Whether no job has a run on the slot."""
        return not self.job


@dataclass(frozen=True, slots=True)
class ExperimentView:
    """What a policy knows about an experiment at the moment of the up-call.

    Attributes:
        metric: Name of the metric to optimize.
        mode: Whether larger (max) or smaller (min) values are better.
        max_position: The position at which a job is complete.
        target: The experiment ends when a job reaches this value; None: no target.
        kill_threshold: A job that stays worse than this value may be ended; None: no threshold.
        jobs_left: Number of jobs that may be created now; 0 while the experiment does not run.
        seed: The seed of the experiment's random numbers.
        end_at: The time at which the experiment ends, in seconds since the Unix epoch; None: no limit.
        id: The experiment's id.
        weight: Its part of the cluster relative to other experiments: weight 2 gets twice the slots of weight 1 if both can use
            them.
        running: Whether its jobs may be created and started now, because it is neither paused nor ended.
        space: The space of its configurations, with constraints, for policies that change hyperparameters; None: not
            known, as in a simulation of recorded curves.
        partitions: Number of training partitions of its data; an epoch has as many units. 0: the experiment names no
            data.
        concurrency: Maximum number of jobs that may train at a time; None: no limit.
        plan: The id of its root in the search plan. Experiments with the same root train equal configurations in the
            same way. Empty: not known, for example for policies without `shares`.
        low: The smallest value that the metric can have (`metric.min`); None: not known.
        high: The largest value that the metric can have (`metric.max`); None: not known.
    """

    metric: str
    mode: Literal["max", "min"]
    max_position: int
    target: float | None = None
    kill_threshold: float | None = None
    jobs_left: int = 0
    seed: int = 0
    end_at: float | None = None
    id: str = ""
    weight: float = 1.0
    running: bool = True
    space: Space | None = None
    partitions: int = 0
    concurrency: int | None = None
    plan: str = ""
    low: float | None = None
    high: float | None = None

    def better(self, a: float, b: float) -> bool:
        """Return whether the metric value `a` is better than `b` by `mode`. NaN is the worst value, and two NaNs are equal."""
        if a != a:
            return False
        if b != b:
            return True
        return a > b if self.mode == "max" else a < b

    def rated(self, value: float) -> float:
        """Convert a value of the metric for comparisons: larger is better. NaN and infinite values become minus infinity.

        With `low` and `high` the result is normalized: 0 for the worst and 1 for the best possible value (HyperDrive, section 6.3,
        equation 4). Values beyond them are not clipped: they become less than 0 or more than 1, so that the order remains. Results that
        would overflow are the largest finite numbers. A range whose width overflows is ignored.
        """
        if not math.isfinite(value):
            return -math.inf
        if self.low is None or self.high is None or not 0 < self.high - self.low < math.inf:
            return value if self.mode == "max" else -value
        worst, best = (self.low, self.high) if self.mode == "max" else (self.high, self.low)
        return min(max((value - worst) / (best - worst), -sys.float_info.max), sys.float_info.max)


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One point of a learning curve: the metrics of a job at a position.

    If an evaluation is divided among several runs, their metrics are averaged with the numbers of examples as weights.

    Attributes:
        position: The position of the report.
        metrics: The values of the metrics by name.
        seconds: Seconds of training since the previous report.
    """

    position: int
    metrics: Metrics
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Incumbent:
    """The best value of the experiment's metric so far, including intermediate results.

    Attributes:
        job: The id of the job that reported it.
        position: The position of the report.
        value: The value of the metric; finite.
    """

    job: str
    position: int
    value: float


class CommandError(ValueError):
    """A down-call can never be carried out, for example because it names an unknown job: an error in the policy's code."""
