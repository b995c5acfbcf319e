"""What nodes hold of partitioned data, against what they would hold if each had all of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes of data on nodes.

    Attributes:
        data: All partitions, once.
        held: All replicas: what the nodes hold.
        copies: What they would hold if each of them had all partitions, as task parallelism needs.
        nodes: How many nodes that are.
    """

    data: int
    held: int
    copies: int
    nodes: int


def storage(partitions: Iterable[tuple[int, Collection[str]]], used: Iterable[str] = ()) -> Storage:
    """What nodes hold.

    Args:
        partitions: Of each its bytes, and the nodes that hold it.
        used: Nodes that count also if they hold nothing.
    """
    known = [(size, frozenset(nodes)) for size, nodes in partitions]
    data = sum(size for size, _ in known)
    nodes = frozenset(used).union(*(nodes for _, nodes in known))
    return Storage(data, sum(size * len(nodes) for size, nodes in known), data * len(nodes), len(nodes))
