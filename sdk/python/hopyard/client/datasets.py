"""Partitioned data as clients see them."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from hopyard._runtime.datasets.usage import Storage, storage


class ReplicaState(enum.Enum):
    """How a copy of a partition stands: its node holds it, lost or changed it, is away, or has not said yet."""

    PRESENT = "PRESENT"
    BROKEN = "BROKEN"
    AWAY = "AWAY"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class DataReplica:
    """A copy of a partition at a path on a node; `detail` says what is wrong with it."""

    node: str
    path: str
    state: ReplicaState = ReplicaState.UNKNOWN
    detail: str = ""


@dataclass(frozen=True, slots=True)
class DataPartition:
    """A part of a data set.

    Attributes:
        name: Its split and number: "train/3", "eval/0".
        size_bytes: Its bytes.
        sha256: Their hash.
        examples: How many it has; None: not known.
        replicas: Where it lies; of one with a URL, which nodes have read it.
        url: Where nodes get it from; empty: it lies on nodes only.
    """

    name: str
    size_bytes: int = 0
    sha256: str = ""
    examples: int | None = None
    replicas: tuple[DataReplica, ...] = ()
    url: str = ""


@dataclass(frozen=True, slots=True)
class DataSet:
    """Partitioned data of the catalog; `experiments` are those that use it and are not over."""

    name: str
    partitions: tuple[DataPartition, ...]
    registered_at: float = 0.0
    experiments: tuple[str, ...] = ()

    @property
    def storage(self) -> Storage:
        """What its nodes hold of it, but for copies that are broken, against full copies on each of them."""
        return storage(
            (one.size_bytes, {each.node for each in one.replicas if each.state is not ReplicaState.BROKEN})
            for one in self.partitions
        )
