"""Partitioned data in a simulation: where partitions lie, and what an epoch over them is like."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from hopyard.errors import InvalidInput
from hopyard_engine.core.types import PlacedData, PlacedPartition
from hopyard_simulator.workload import Lesson, Workload


@dataclass(frozen=True, slots=True)
class Partitions:
    """Equal partitions on the nodes, in turn.

    Attributes:
        train: How many there are to train on, >= 1.
        eval: How many there are to evaluate on, >= 0.
        replicas: How many nodes hold each, >= 1: the one whose turn it is, and the next ones.
    """

    train: int = 1
    eval: int = 0
    replicas: int = 1

    def __post_init__(self) -> None:
        """Checks.

        Raises:
            InvalidInput: A number is out of range.
        """
        for field in fields(self):
            value, least = getattr(self, field.name), 0 if field.name == "eval" else 1
            if value != int(value) or value < least:
                raise InvalidInput(
                    f"{field.name} of the data must be a whole number of at least {least}, found {value!r}"
                )
            object.__setattr__(self, field.name, int(value))

    def placed(self, nodes: Sequence[str]) -> PlacedData:
        """The data on some nodes.

        Raises:
            InvalidInput: There are fewer nodes than replicas.
        """
        if self.replicas > len(nodes):
            raise InvalidInput(f"{self.replicas} replicas need as many nodes, found {len(nodes)}")
        partitions = [
            PlacedPartition(
                f"{split}/{number}",
                places={nodes[(number + more) % len(nodes)]: f"{split}/{number}" for more in range(self.replicas)},
            )
            for split, count in (("train", self.train), ("eval", self.eval))
            for number in range(count)
        ]
        return PlacedData("simulated", tuple(partitions))


class PartitionedWorkload(Workload):
    """A workload whose positions are epochs, trained in units: each epoch is as many positions as there are partitions.

    A unit takes its part of the epoch's seconds. What the epoch measured is reported with its last unit; before that the metric is
    NaN, not known.

    Args:
        whole: What is trained, epoch by epoch.
        partitions: How many to train on, >= 1.
    """

    def __init__(self, whole: Workload, partitions: int) -> None:
        self._whole, self._partitions = whole, partitions
        self.metric, self.mode = whole.metric, whole.mode
        self.max_position = whole.max_position * partitions

    def configurations(self, order_seed: int | None) -> Sequence[Mapping[str, Any]]:
        """Those of the whole."""
        return self._whole.configurations(order_seed)

    def lesson(self, hyperparameters: Mapping[str, Any]) -> Lesson:
        """The lesson in units, for each epoch up to the last report's."""
        whole, units = self._whole.lesson(hyperparameters), self._partitions
        values: list[float] = []
        seconds: list[float] = []
        before = 0
        for value, span, position in zip(whole.values, whole.seconds, whole.positions, strict=True):
            count = (position - before) * units
            values += [math.nan] * (count - 1) + [value]
            seconds += [span / count] * count
            before = position
        return Lesson(values, seconds, range(1, len(values) + 1))
