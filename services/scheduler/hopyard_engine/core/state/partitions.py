"""The partitioned data of an experiment: which nodes have replicas, and from where a run reads its partition.

The name of a training partition begins with "train/"; all others are for evaluation.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from hopyard.policy.vocabulary import Data, Partition
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.types import PlacedData, PlacedPartition

_TRAIN = "train/"


@dataclass(frozen=True, slots=True)
class Place:
    """The location from which a run reads its partition.

    Attributes:
        place: A path on the run's node, or a URL, from which the partition is read.
        sha256: Expected SHA-256 of the data of the partition.
        size: Expected size in bytes.
    """

    place: str
    sha256: str
    size: int


def units(data: PlacedData) -> int:
    """Return the number of training partitions of `data`."""
    return sum(one.name.startswith(_TRAIN) for one in data.partitions)


class PlacedPartitions:
    """Represents the data set of one experiment with its current locations, as recorded in the journal.

    Args:
        data: The data set at the creation of the experiment.

    Attributes:
        name: Name of the data set.
        partitions: All partitions by name.
        units: Number of training partitions.
    """

    def __init__(self, data: PlacedData) -> None:
        self.name = data.name
        self.partitions = {one.name: one for one in data.partitions}
        self.units = units(data)

    @property
    def evaluated(self) -> bool:
        """Whether there are partitions to evaluate on, so that evaluations report the metric."""
        return self.units < len(self.partitions)

    def take(self, changed: tuple[PlacedPartition, ...]) -> None:
        """Replace the recorded partitions with the same names by those in `changed`. New names are added."""
        self.partitions.update((one.name, one) for one in changed)

    def differs(self, changed: tuple[PlacedPartition, ...]) -> bool:
        """Return whether any partition in `changed` differs from the recorded one of the same name, or is new."""
        return any(self.partitions.get(one.name) != one for one in changed)

    def leave(self, node: str) -> None:
        """Remove the replicas on a lost node."""
        for one in self.partitions.values():
            if node in one.places:
                left = {name: place for name, place in one.places.items() if name != node}
                self.partitions[one.name] = replace(one, places=left)

    def moved(self) -> None:
        """Remove all locations, because the experiment was imported into another cluster. `take` sets the locations there."""
        for one in self.partitions.values():
            self.partitions[one.name] = replace(one, places={}, homes=(), url="")

    def place(self, name: str, node: str) -> Place | Reason:
        """Return the location from which a run on `node` reads the partition `name`, or the reason why the node cannot read it."""
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
        """Return the partitions that no node can read: they have neither a replica on a live node nor a URL."""
        return [one for one in self.partitions.values() if not one.places and not one.url]

    def view(self, nodes: Collection[str]) -> Data:
        """Return the data set as policies see it.

        A partition with a URL and no replica on any of `nodes` is shown as readable on all of them.

        Args:
            nodes: Names of the nodes on which the stream has slots.
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
