"""The interfaces between a simulation, its nodes and their runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from hopyard.policy.vocabulary import RunEndReason, RunKey
from hopyard_engine.core.events import Event
from hopyard_engine.core.types import SnapshotInfo
from hopyard_simulator.conditions import Costs, Faults
from hopyard_simulator.event_heap import EventHeap
from hopyard_simulator.metrics import Measurements
from hopyard_simulator.workload import Lesson, Workload


class Environment(Protocol):
    """The part of a simulation that its nodes and runs use. `World` implements it.

    Attributes:
        workload: The training of each configuration.
        costs: The duration of operations.
        faults: The random faults.
        seed: Seed of the random numbers of nodes.
        max_position: Position at which a job is complete.
        from_scratch: True if a resumed run trains again from position 0.
        speedup: Returns the factor (> 0) by which a run on a given number of slots is faster than on one.
        timeline: The virtual clock and the scheduled actions.
        measure: Collects the measurements of the simulation.
    """

    workload: Workload
    costs: Costs
    faults: Faults
    seed: int
    max_position: int
    from_scratch: bool
    speedup: Callable[[int], float]
    timeline: EventHeap
    measure: Measurements

    def handle(self, event: Event) -> None:
        """Make the engine handle an event at the present virtual time."""

    def deliver(self, event: Event) -> None:
        """Make the engine handle an event after the latency of the network (`Costs.latency`)."""

    def back(self, node: str) -> None:
        """Restore the data partitions of a node that has returned after a failure. No effect without partitioned data."""

    def lesson(self, hyperparameters: Mapping[str, Any]) -> Lesson:
        """Return the complete training of a configuration: its reports and the training time before each.

        The reports have noise if `Faults.noise` is set.

        Raises:
            InvalidInput: The workload does not know the configuration.
        """

    def gang_begins(self, key: RunKey, ranks: int) -> None:
        """Register the start of a process of a gang, so that `gang_left` can end the other processes of the gang.

        Args:
            key: The key of the process: job, attempt and rank.
            ranks: The number of processes (slots) of its run; 1: the run is no gang, and nothing is registered.
        """

    def gang_left(self, key: RunKey) -> None:
        """End the other processes of a gang, because the process with this key has ended. No effect if its run is no gang."""


class RunHost(Protocol):
    """The node of a simulated run, as the run uses it. `Agent` implements it.

    Attributes:
        world: The simulation of the node.
        node: The id of the node.
    """

    world: Environment
    node: str

    def save(self, key: RunKey, position: int) -> SnapshotInfo:
        """Save and return a snapshot of a run.

        Args:
            key: The key of the run.
            position: The position of the snapshot.
        """

    def left(self, run: Any, reason: RunEndReason) -> None:
        """Free the slot of a run that has ended.

        Args:
            run: The `SimulatedRun`.
            reason: Why it ended.
        """
