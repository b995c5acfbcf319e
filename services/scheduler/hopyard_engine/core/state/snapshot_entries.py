"""The record of one snapshot, and the rule for which snapshots a job retains."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from hopyard_engine.core.state_machines.snapshot_states import SNAPSHOT, SnapshotState
from hopyard_engine.core.types import SnapshotInfo

SnapshotId = tuple[str, int]
"""(job id, position). In a source of a run, the name of an earlier trial may take the place of the job id."""


class Shipper(NamedTuple):
    """Identifies who uploads a snapshot: a run on a node, or the agent of the node by an upload order of the scheduler.

    Attributes:
        node: Name of the node.
        attempt: Attempt number of the run that uploads it; ignored for an order.
        order: Number of the upload order (>= 1); 0: the run uploads it.
    """

    node: str
    attempt: int = 0
    order: int = 0


@dataclass(slots=True)
class SnapshotEntry:
    """Represents a snapshot of a job at a position.

    Attributes:
        job: Id of the job.
        info: Description from the agent that took it.
        nodes: Nodes with a copy.
        state: State of its upload, see `snapshot_states`.
        pins: Names of the holders that need it: runs that load it, jobs that start from it. It is not deleted while there are any.
        misses: Number of runs that found it neither on a node nor in the store.
        attempts: Attempts that took it. Upload reports of other attempts are ignored, because an older attempt's upload may have been
            deleted.
        shipper: Who uploads it now or did so last; None: nobody, or the last upload failed.
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
        """Whether the snapshot is in the store."""
        return self.state is SnapshotState.STORED

    @property
    def deferred(self) -> bool:
        """Whether the upload of the snapshot waits for an order."""
        return self.state is SnapshotState.DEFERRED

    @property
    def available(self) -> bool:
        """Whether a run can load the snapshot now, from the store or from a node."""
        return self.stored or bool(self.nodes)

    @property
    def settled(self) -> bool:
        """Whether no upload of the snapshot is in progress."""
        return self.state not in (SnapshotState.UPLOADING, SnapshotState.ORDERED)


@dataclass(slots=True)
class Dropped:
    """Contents (saved data) of a snapshot to which no `SnapshotEntry` refers any more.

    The caller must delete them from the store and from the nodes.

    They may be in the store even if no upload was reported, because the agent may have failed after the upload.

    Attributes:
        sha256: Hash of the contents.
        nodes: Nodes with a copy.
    """

    sha256: str
    nodes: tuple[str, ...]


class Keep(NamedTuple):
    """The number of snapshots that a job retains.

    Attributes:
        latest: Number of newest snapshots (>= 1).
        best: Number of snapshots with the best metric (>= 0).
    """

    latest: int = 1
    best: int = 0


def retained(by_position: dict[int, SnapshotEntry], value: Callable[[int], float | None], how_many: Keep) -> set[int]:
    """Return the positions of the snapshots that a job retains: the newest, the best, and the fallbacks for the loss of a node.

    The fallbacks are the newest stored snapshot and the one that `reserve` returns. Requests of the policy are not considered.

    Args:
        by_position: The job's snapshots by position.
        value: Returns the job's metric at a position, where higher is better; None: it has none there.
        how_many: Number of newest and best snapshots to retain.
    """
    available = sorted((p for p, e in by_position.items() if e.available), reverse=True)
    kept = set(available[: max(how_many.latest, 1)])
    kept |= {max(stored)} if (stored := [p for p in available if by_position[p].stored]) else set()
    kept |= reserve(by_position, available[::-1])
    scored = [(v, p) for p in available if (v := value(p)) is not None and v == v]
    kept |= {p for _, p in sorted(scored, key=lambda item: (-item[0], item[1]))[: how_many.best]}
    return kept


def reserve(by_position: dict[int, SnapshotEntry], available: list[int]) -> set[int]:
    """Return the position of the fallback that a job needs while its newest snapshot is on one node only and its upload is deferred.

    The fallback is the newest older snapshot that is stored or on another node. The set has at most one element. It is empty if the
    newest snapshot is stored, is on several nodes, or has no deferred upload, or if there is no such fallback.

    Args:
        by_position: The job's snapshots by position.
        available: Positions of the job's available snapshots, ascending.
    """
    newest = by_position[available[-1]] if available else None
    if newest is None or not newest.by_order or newest.stored or len(newest.nodes) > 1:
        return set()
    older = (p for p in reversed(available[:-1]) if by_position[p].stored or by_position[p].nodes - newest.nodes)
    return set(itertools.islice(older, 1))
