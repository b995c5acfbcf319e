"""The state of one snapshot, and the rule for which snapshots a job retains by itself."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from hopyard_engine.core.state_machines.snapshot_states import SNAPSHOT, SnapshotState
from hopyard_engine.core.types import SnapshotInfo

SnapshotId = tuple[str, int]
"""The job and the position."""


class Shipper(NamedTuple):
    """The uploader of a snapshot: the channel of an attempt, or, with an `order` above 0, the node with that upload order."""

    node: str
    attempt: int = 0
    order: int = 0


@dataclass(slots=True)
class SnapshotEntry:
    """A snapshot of a job at a position.

    Attributes:
        job: Id of the job.
        info: Description from the agent that took it.
        nodes: Nodes with a copy.
        state: State, see `snapshot_states`.
        pins: Holders that need it: runs that load it, jobs that start from it.
        misses: Number of runs that found it neither on a node nor in the store.
        attempts: Attempts that took it. Only their upload reports count: an older attempt's upload may have been deleted.
        shipper: Its current or last uploader; None: none.
        by_order: Whether it is uploaded only when the scheduler orders it (see `deferred_uploads`).
        number: Sequence number of its registration in the stream.
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
        """True if it is in the store."""
        return self.state is SnapshotState.STORED

    @property
    def deferred(self) -> bool:
        """True if its upload waits for an order."""
        return self.state is SnapshotState.DEFERRED

    @property
    def available(self) -> bool:
        """True if a run can load it now."""
        return self.stored or bool(self.nodes)

    @property
    def settled(self) -> bool:
        """True if no upload is in progress."""
        return self.state not in (SnapshotState.UPLOADING, SnapshotState.ORDERED)


@dataclass(slots=True)
class Dropped:
    """The contents of a snapshot that no entry refers to any more.

    They may be in the store without a report of it, if their agent died after the upload.
    """

    sha256: str
    nodes: tuple[str, ...]


class Keep(NamedTuple):
    """The number of a job's snapshots to keep: the newest `latest` (>= 1) and the best `best` (>= 0)."""

    latest: int = 1
    best: int = 0


def retained(by_position: dict[int, SnapshotEntry], value: Callable[[int], float | None], how_many: Keep) -> set[int]:
    """Returns the positions of the snapshots that a job retains by itself.

    `value` returns the job's metric at a position, higher is better, or None.
    """
    available = sorted((p for p, e in by_position.items() if e.available), reverse=True)
    kept = set(available[: max(how_many.latest, 1)])
    kept |= {max(stored)} if (stored := [p for p in available if by_position[p].stored]) else set()
    kept |= reserve(by_position, available[::-1])
    scored = [(v, p) for p in available if (v := value(p)) is not None and v == v]
    kept |= {p for _, p in sorted(scored, key=lambda item: (-item[0], item[1]))[: how_many.best]}
    return kept


def reserve(by_position: dict[int, SnapshotEntry], available: list[int]) -> set[int]:
    """Returns the position of the fallback for a job whose newest snapshot has a deferred upload and is on one node only; else empty.

    The fallback is the newest older snapshot that is stored or on another node. `available` is ascending.
    """
    newest = by_position[available[-1]] if available else None
    if newest is None or not newest.by_order or newest.stored or len(newest.nodes) > 1:
        return set()
    older = (p for p in reversed(available[:-1]) if by_position[p].stored or by_position[p].nodes - newest.nodes)
    return set(itertools.islice(older, 1))
