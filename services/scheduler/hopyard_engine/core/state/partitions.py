"""The partitioned data of an experiment: the nodes with replicas, and the location from which a run reads its partition."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from hopyard.policy.vocabulary import Data, Partition
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.types import PlacedData, PlacedPartition

_TRAIN = "train/"


@dataclass(frozen=True, slots=True)
class Place:
    """The location of a run's partition: a path on its node or a URL, with the expected hash and size in bytes."""

    place: str
    sha256: str
    size: int


def units(data: PlacedData) -> int:
    """Returns the number of training partitions."""
    return sum(one.name.startswith(_TRAIN) for one in data.partitions)


class PlacedPartitions:
    """The data of one experiment, as recorded in its journal.

    Attributes:
        name: Name of the data set.
        partitions: All partitions by name.
        units: Number of training partitions.
    """

    def __init__(self, data: PlacedData) -> None:
        self.name = data.name
        self.partitions = {one.name: one for one in data.partitions}
        self.units = units(data)

    def take(self, changed: tuple[PlacedPartition, ...]) -> None:
        """Updates these partitions."""
        self.partitions.update((one.name, one) for one in changed)

    def differs(self, changed: tuple[PlacedPartition, ...]) -> bool:
        """Returns whether any of these partitions differs from the known one."""
        return any(self.partitions.get(one.name) != one for one in changed)

    def leave(self, node: str) -> None:
        """Removes the replicas of a lost node."""
        for one in self.partitions.values():
            if node in one.places:
                left = {name: place for name, place in one.places.items() if name != node}
                self.partitions[one.name] = replace(one, places=left)

    def moved(self) -> None:
        """Removes all locations: the experiment was imported into another cluster, which does not know its data yet."""
        for one in self.partitions.values():
            self.partitions[one.name] = replace(one, places={}, homes=(), url="")

    def place(self, name: str, node: str) -> Place | Reason:
        """Returns the location of a partition for a run on a node, or the reason why the node cannot read it."""
        one = self.partitions.get(name)
        if one is None:
            names = _names(list(self.partitions))
            return Reason.of(ReasonCode.NO_SUCH_PARTITION, data=self.name, partition=name, partitions=names)
        where = one.places.get(node, one.url)
        if where:
            return Place(where, one.sha256, one.size)
        if one.places:
            nodes = _names(sorted(one.places))
            code, count = ReasonCode.PARTITION_ELSEWHERE, len(one.places)
            return Reason.of(code, node=node, partition=name, data=self.name, nodes=nodes, count=count)
        return Reason.of(ReasonCode.PARTITION_NOWHERE, partition=name, data=self.name)

    def missing(self) -> list[PlacedPartition]:
        """Returns the partitions with neither a replica nor a URL."""
        return [one for one in self.partitions.values() if not one.places and not one.url]

    def view(self, nodes: Collection[str]) -> Data:
        """Returns the data as policies see it, for an experiment with slots on these nodes.

        A partition with a URL and no replica on any of these nodes is shown as readable on all of them.
        """
        seen = [
            Partition(one.name, one.examples, one.size, tuple(sorted(self._readers(one, nodes))), bool(one.url))
            for one in self.partitions.values()
        ]
        train = tuple(one for one in seen if one.name.startswith(_TRAIN))
        return Data(self.name, train, tuple(one for one in seen if not one.name.startswith(_TRAIN)))

    @staticmethod
    def _readers(one: PlacedPartition, nodes: Collection[str]) -> Collection[str]:
        first = one.url and not any(node in one.places for node in nodes)
        return {*one.places, *nodes} if first else one.places.keys()


def _names(names: list[str]) -> str:
    shown = names if len(names) <= 4 else [*names[:3], f"{len(names) - 3} more"]
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else "".join(shown)
