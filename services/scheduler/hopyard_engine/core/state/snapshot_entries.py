"""What is known of one snapshot, and which of a job's snapshots it retains by itself."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from hopyard_engine.core.state_machines.snapshot_states import SNAPSHOT, SnapshotState
from hopyard_engine.core.types import SnapshotInfo

SnapshotId = tuple[str, int]
"""Its job, and its position."""


class Shipper(NamedTuple):
    """Who brings a snapshot to the store: the channel of an attempt, or, with an `order` above 0, the node by that order."""

    node: str
    attempt: int = 0
    order: int = 0


@dataclass(slots=True)
class SnapshotEntry:
    """A snapshot of a job at a position.

    Attributes:
        job: The job.
        info: What the agent that took it reported.
        nodes: Nodes with a copy.
        state: See `snapshot_states`.
        pins: Who needs it: runs that load it, jobs that start from it.
        misses: Runs that found it neither on a node nor in the store.
        attempts: The attempts that took it. Only they can report that it is stored: what an older attempt stored may be deleted.
        shipper: Who uploads it, or did; None: nobody does.
        by_order: Whether it is uploaded only when the scheduler orders it (see `deferred_uploads`).
        number: Rises with each snapshot that the stream registers.
    """

    job: str
    info: SnapshotInfo
    nodes: set[str] = field(default_factory=set)
    state: SnapshotState = SNAPSHOT.initial
    pins: set[str] = field(default_factory=set)
    misses: int = 0
    attempts: set[int] = field(default_factory=set)
    shipper: Shipper | None = None
    by_order: bool = False
    number: int = 0

    @property
    def stored(self) -> bool:
        """Whether the store has it."""
        return self.state is SnapshotState.STORED

    @property
    def deferred(self) -> bool:
        """Whether its upload waits for an order."""
        return self.state is SnapshotState.DEFERRED

    @property
    def available(self) -> bool:
        """Whether a run can load it now."""
        return self.stored or bool(self.nodes)

    @property
    def settled(self) -> bool:
        """Whether it is in the store, or will never get there."""
        return self.state not in (SnapshotState.UPLOADING, SnapshotState.ORDERED)


@dataclass(slots=True)
class Dropped:
    """Bytes that no entry refers to any more. They may be in the store even if nobody said so: their agent may have died."""

    sha256: str
    nodes: tuple[str, ...]


class Keep(NamedTuple):
    """How many snapshots of a job its experiment keeps: the newest `latest` (>= 1) and the best `best` (>= 0)."""

    latest: int = 1
    best: int = 0


def retained(by_position: dict[int, SnapshotEntry], value: Callable[[int], float | None], how_many: Keep) -> set[int]:
    """Positions of the snapshots that a job retains by itself; `value` is its metric at a position, higher is better, or None."""
    available = sorted((p for p, e in by_position.items() if e.available), reverse=True)
    kept = set(available[: max(how_many.latest, 1)])
    kept |= {max(stored)} if (stored := [p for p in available if by_position[p].stored]) else set()
    kept |= reserve(by_position, available[::-1])
    scored = [(v, p) for p in available if (v := value(p)) is not None and v == v]
    kept |= {p for _, p in sorted(scored, key=lambda item: (-item[0], item[1]))[: how_many.best]}
    return kept


def reserve(by_position: dict[int, SnapshotEntry], available: list[int]) -> set[int]:
    """The position that a job would fall back to if the only node with its newest snapshot died before the store has that.

    `available` ascends.
    """
    newest = by_position[available[-1]] if available else None
    if newest is None or not newest.by_order or newest.stored or len(newest.nodes) > 1:
        return set()
    older = (p for p in reversed(available[:-1]) if by_position[p].stored or by_position[p].nodes - newest.nodes)
    return set(itertools.islice(older, 1))
