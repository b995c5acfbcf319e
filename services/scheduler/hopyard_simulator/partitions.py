"""Partitioned data in a simulation: the placement of partitions on nodes, and workloads in units of one partition."""

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
    """A data set of equal partitions, whose replicas are assigned to the nodes cyclically.

    Attributes:
        train: The number of training partitions, 1 or more.
        eval: The number of evaluation partitions, 0 or more.
        replicas: The number of replicas of each partition, 1 or more. They are on consecutive nodes.
    """

    train: int = 1
    eval: int = 0
    replicas: int = 1

    def __post_init__(self) -> None:
        """Raise InvalidInput if a number is out of its range or not whole."""
        for field in fields(self):
            value, least = getattr(self, field.name), 0 if field.name == "eval" else 1
            if value != int(value) or value < least:
                raise InvalidInput(
                    f"{field.name} of the data must be a whole number of at least {least}, found {value!r}"
                )
            object.__setattr__(self, field.name, int(value))

    def placed(self, nodes: Sequence[str]) -> PlacedData:
        """Return the data set with the places of its replicas.

        Args:
            nodes: The ids of all nodes.

        Raises:
            InvalidInput: There are fewer nodes than replicas of a partition.
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
    """A workload whose positions are units: the training on one partition. It wraps a workload whose positions are epochs.

    An epoch has one unit for each training partition. A unit takes an equal part of the seconds of its epoch. The last
    unit of an epoch reports the metric of the epoch. The other units report NaN (unknown).

    Args:
        whole: The workload in epochs.
        partitions: The number of training partitions, 1 or more.
    """

    def __init__(self, whole: Workload, partitions: int) -> None:
        self._whole, self._partitions = whole, partitions
        self.metric, self.mode = whole.metric, whole.mode
        self.max_position = whole.max_position * partitions

    def configurations(self, order_seed: int | None) -> Sequence[Mapping[str, Any]]:
        """Return the configurations of the wrapped workload, shuffled if `order_seed` is given."""
        return self._whole.configurations(order_seed)

    def lesson(self, hyperparameters: Mapping[str, Any]) -> Lesson:
        """Return the training of a configuration: its reports, one for each unit, and the training time before each.

        It ends with the epoch in which the wrapped workload has the last report of the configuration.

        Raises:
            InvalidInput: The configuration is unknown.
        """
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
