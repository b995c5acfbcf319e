"""The partitioned data of an experiment: which nodes hold what, and where a run reads its partition."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from hopyard.policy.vocabulary import Data, Partition
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.types import PlacedData, PlacedPartition

_TRAIN = "train/"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run finds its partition: a path or URL on its node, and what has to be there."""

    place: str
    sha256: str
    size: int


def units(data: PlacedData) -> int:
    """How many partitions there are to train on."""
    return sum(one.name.startswith(_TRAIN) for one in data.partitions)


class PlacedPartitions:
    """The data of one experiment, as its journal says.

    Attributes:
        name: What the data set is called.
        partitions: All of them by name.
        units: How many of them there are to train on.
    """

    def __init__(self, data: PlacedData) -> None:
        self.name = data.name
        self.partitions = {one.name: one for one in data.partitions}
        self.units = units(data)

    def take(self, changed: tuple[PlacedPartition, ...]) -> None:
        """Partitions lie elsewhere now."""
        self.partitions.update((one.name, one) for one in changed)

    def differs(self, changed: tuple[PlacedPartition, ...]) -> bool:
        """Whether any of these lies elsewhere than is known."""
        return any(self.partitions.get(one.name) != one for one in changed)

    def leave(self, node: str) -> None:
        """A node is gone, with what it holds."""
        for one in self.partitions.values():
            if node in one.places:
                left = {name: place for name, place in one.places.items() if name != node}
                self.partitions[one.name] = replace(one, places=left)

    def moved(self) -> None:
        """The experiment is in another cluster, where nothing is known of its data yet."""
        for one in self.partitions.values():
            self.partitions[one.name] = replace(one, places={}, homes=(), url="")

    def place(self, name: str, node: str) -> Place | Reason:
        """Where a run on a node finds a partition; else what stands against it."""
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
        """Partitions that nobody holds and nobody can get."""
        return [one for one in self.partitions.values() if not one.places and not one.url]

    def view(self, nodes: Collection[str]) -> Data:
        """What policies see, with the experiment's slots on these nodes.

        Of a partition with a URL that none of them has read yet, each can be the first.
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
