"""Interfaces between simulated nodes, runs and their simulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from hopyard.policy.vocabulary import RunEndReason, RunKey
from hopyard_engine.core.events import Event
from hopyard_engine.core.types import SnapshotInfo
from hopyard_simulator.conditions import Costs, Faults
from hopyard_simulator.event_heap import EventHeap
from hopyard_simulator.metrics import Measure
from hopyard_simulator.workload import Lesson, Workload


class Environment(Protocol):
    """The simulation as its nodes and runs see it.

    Attributes:
        workload: What jobs report.
        costs: How long things take.
        faults: What fails, and how often.
        seed: Seed of the random numbers of nodes.
        max_position: Position at which a job is complete.
        from_scratch: Whether a resumed run trains again from position 0.
        speedup: Factor by which a run on several slots is faster than on one.
        timeline: The virtual clock.
        measure: The metrics of the simulation.
    """

    workload: Workload
    costs: Costs
    faults: Faults
    seed: int
    max_position: int
    from_scratch: bool
    speedup: Callable[[int], float]
    timeline: EventHeap
    measure: Measure

    def handle(self, event: Event) -> None:
        """Pass an event to the engine at once."""

    def deliver(self, event: Event) -> None:
        """Pass an event to the engine after the latency of the network."""

    def back(self, node: str) -> None:
        """Restore the partitions of a node that had failed."""

    def lesson(self, hyperparameters: Mapping[str, Any]) -> Lesson:
        """Return the reports of a configuration, with noise."""

    def gang_begins(self, key: RunKey, ranks: int) -> None:
        """Register a process of a run on several slots."""

    def gang_left(self, key: RunKey) -> None:
        """End the other processes of a gang that lost one."""


class RunHost(Protocol):
    """The node of a simulated run.

    Attributes:
        world: Its simulation.
    """

    world: Environment

    def save(self, key: RunKey, position: int) -> SnapshotInfo:
        """Save a snapshot of a run."""

    def left(self, run: Any, reason: RunEndReason) -> None:
        """Free the slot of a run that ended."""
