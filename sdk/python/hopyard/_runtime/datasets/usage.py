"""Compares the storage that partitioned data uses on nodes with that of full copies on each node."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes of data on nodes.

    Attributes:
        data: Size of all partitions, each counted once.
        held: Size of all replicas, which is what the nodes store.
        copies: Size if each node had all partitions, as task parallelism needs.
        nodes: Number of nodes.
    """

    data: int
    held: int
    copies: int
    nodes: int


def storage(partitions: Iterable[tuple[int, Collection[str]]], used: Iterable[str] = ()) -> Storage:
    """Returns the storage that partitions use on nodes.

    Args:
        partitions: Size in bytes of each partition, and the nodes that have it.
        used: Nodes to count even if they have no partition.
    """
    known = [(size, frozenset(nodes)) for size, nodes in partitions]
    data = sum(size for size, _ in known)
    nodes = frozenset(used).union(*(nodes for _, nodes in known))
    return Storage(data, sum(size * len(nodes) for size, nodes in known), data * len(nodes), len(nodes))
