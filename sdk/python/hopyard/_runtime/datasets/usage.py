"""Compares the storage that partitioned data uses on nodes with that of full copies on each node."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Storage:
    """The bytes that partitioned data uses on nodes, compared with full copies.

    Attributes:
        data: Size of all partitions, each counted once.
        held: Size of all replicas, which is what the nodes store.
        copies: Size if each node had a copy of all partitions, as without partitioned training.
        nodes: Number of nodes that have a replica or were named to `storage` as used.
    """

    data: int
    held: int
    copies: int
    nodes: int


def storage(partitions: Iterable[tuple[int, Collection[str]]], used: Iterable[str] = ()) -> Storage:
    """Return the storage that partitions use on nodes.

    Args:
        partitions: For each partition its size in bytes and the names of the nodes that have a replica.
        used: Names of nodes to count even if they have no replica.
    """
    known = [(size, frozenset(nodes)) for size, nodes in partitions]
    data = sum(size for size, _ in known)
    nodes = frozenset(used).union(*(nodes for _, nodes in known))
    return Storage(data, sum(size * len(nodes) for size, nodes in known), data * len(nodes), len(nodes))
