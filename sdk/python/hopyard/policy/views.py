"""What a policy sees: jobs, machines, its experiments, curves and the best value, as they are at an up-call."""

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
        id: The job's id within its experiment.
        state: Where it stands.
        hyperparameters: Its configuration; empty while CREATING.
        position: How far its newest state has come, in units.
        high_water: The highest position that was ever reported.
        attempt: Runs so far.
        machines: Machines of its present run; empty without one.
        priority: Its label; None without one.
        parent: The job it was forked from; empty for none.
        fork_position: Where it was forked.
        parked: Whether its run waits in memory at its `until`.
        ordinal: Order of creation, from 1.
        experiment: Its experiment: one of `Cluster.experiments`.
        max_position: Where it is complete.
    """

    id: str
    state: JobState
    hyperparameters: Hyperparameters = field(default_factory=dict)
    position: int = 0
    high_water: int = 0
    attempt: int = 0
    machines: tuple[str, ...] = ()
    priority: float | None = None
    parent: str = ""
    fork_position: int = 0
    parked: bool = False
    ordinal: int = 0
    experiment: str = ""
    max_position: int = 0


@dataclass(frozen=True, slots=True)
class MachineView:
    """A machine of the experiment at the moment of the up-call; `job` is empty when it runs nothing."""

    id: str
    node: str
    job: str = ""

    @property
    def idle(self) -> bool:
        """Whether it runs nothing."""
        return not self.job


@dataclass(frozen=True, slots=True)
class ExperimentView:
    """The experiment as a policy sees it.

    Attributes:
        metric: Name of the metric to optimise.
        mode: Which direction is better.
        max_position: A job that reaches it is complete.
        target: The experiment ends when a job reaches it; None: no target.
        kill_threshold: A job that stays worse may be ended; None: none.
        jobs_left: Jobs that may be created now; 0 while it does not run.
        seed: The experiment's seed.
        end_at: When the experiment's time is over (seconds since the epoch); None: no limit.
        id: The experiment's id.
        weight: Its part of the group's share, relative to the others'.
        running: Whether its jobs may be created and started now: it is neither paused nor at its end.
        space: What its configurations are taken from, with its constraints, for policies that change hyperparameters; None: not
            known here, as in a simulation of recorded curves.
        partitions: How many partitions of its data there are to train on: so many units are an epoch over them. 0: it names no data.
        plan: Experiments with the same one train equal configurations alike: the root of their search plan. Empty: it is not known,
            as for policies without `shares`.
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
    plan: str = ""

    def better(self, a: float, b: float) -> bool:
        """Whether `a` is better than `b`; NaN is worst, two NaNs are equal."""
        if a != a:
            return False
        if b != b:
            return True
        return a > b if self.mode == "max" else a < b

    def rated(self, value: float) -> float:
        """A value of the metric so that larger is better; minus infinity is what is not finite, and worst."""
        if not math.isfinite(value):
            return -math.inf
        return value if self.mode == "max" else -value


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The metrics of a job at a position; evaluation parts are combined, weighted by their examples."""

    position: int
    metrics: Metrics
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Incumbent:
    """The best value of the experiment's metric so far, from intermediate results."""

    job: str
    position: int
    value: float


class CommandError(ValueError):
    """A down-call that can never be carried out, such as one that names an unknown job: a mistake in the policy."""
