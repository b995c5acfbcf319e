"""The data that a policy sees at an up-call: jobs, slots, experiments, curves and the best value."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from hopyard.policy.vocabulary import Hyperparameters, JobState, Metrics
from hopyard.space import Space


@dataclass(frozen=True, slots=True)
class JobView:
    """A job at the moment of the up-call.

    Attributes:
        id: The job's id in its experiment.
        state: Its state.
        hyperparameters: Its configuration; empty while CREATING.
        position: The position of its newest state, in units.
        high_water: The highest position that was ever reported.
        attempt: Number of runs so far.
        slots: Slots of its current run; empty without one.
        priority: Its priority; None if it has none.
        parent: The job from which it was forked; empty for none.
        fork_position: The position at which it was forked.
        parked: Whether its run waits in memory at its `until`.
        ordinal: Order of creation, starting with 1.
        experiment: Its experiment, which is one of `Cluster.experiments`.
        max_position: The position at which it is complete.
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


@dataclass(frozen=True, slots=True)
class SlotView:
    """A slot of the experiment at the moment of the up-call.

    Attributes:
        id: "NODE/INDEX".
        node: Its node.
        job: The job that it runs; empty: none.
        hardware: Its kind of host. Training takes equally long on hosts of the same kind. Empty: unknown.
    """

    id: str
    node: str
    job: str = ""
    hardware: str = ""

    @property
    def idle(self) -> bool:
        """Whether it runs no job."""
        return not self.job


@dataclass(frozen=True, slots=True)
class ExperimentView:
    """The experiment as a policy sees it.

    Attributes:
        metric: Name of the metric to optimise.
        mode: Whether larger (max) or smaller (min) values are better.
        max_position: The position at which a job is complete.
        target: The experiment ends when a job reaches this value; None: no target.
        kill_threshold: A job that stays worse than this value may be ended; None: no threshold.
        jobs_left: Number of jobs that may be created now; 0 while the experiment does not run.
        seed: The experiment's seed.
        end_at: The time at which the experiment ends (seconds since the epoch); None: no limit.
        id: The experiment's id.
        weight: Its part of the group's share, relative to the other experiments.
        running: Whether its jobs may be created and started now, because it is neither paused nor ended.
        space: The space of its configurations, with constraints, for policies that change hyperparameters; None: not
            known, as in a simulation of recorded curves.
        partitions: Number of its training partitions, and thus of units in an epoch over them. 0: the experiment names
            no data.
        concurrency: Maximum number of jobs that may train at a time; None: no limit.
        plan: The root of its search plan. Experiments with the same root train equal configurations in the same way.
            Empty: not known, for example for policies without `shares`.
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

    def better(self, a: float, b: float) -> bool:
        """Return whether `a` is better than `b`. NaN is worst, and two NaNs are equal."""
        if a != a:
            return False
        if b != b:
            return True
        return a > b if self.mode == "max" else a < b

    def rated(self, value: float) -> float:
        """Convert a value of the metric so that larger is better. A value that is not finite becomes minus infinity."""
        if not math.isfinite(value):
            return -math.inf
        return value if self.mode == "max" else -value


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The metrics of a job at a position. Parts of an evaluation are combined, weighted by their examples."""

    position: int
    metrics: Metrics
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Incumbent:
    """The best value of the experiment's metric so far, including intermediate results."""

    job: str
    position: int
    value: float


class CommandError(ValueError):
    """A down-call that can never be carried out, such as one with an unknown job. It is an error in the policy."""
