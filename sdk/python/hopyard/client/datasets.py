"""The data sets in the catalog of a cluster, as the client returns them."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from hopyard._runtime.datasets.usage import Storage, storage


class ReplicaState(enum.Enum):
    """The state of a replica.

    PRESENT: unchanged on its node. BROKEN: lost or changed. AWAY: the node is not connected. UNKNOWN: the node has not
    reported it yet.
    """

    PRESENT = "PRESENT"
    BROKEN = "BROKEN"
    AWAY = "AWAY"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class DataReplica:
    """A copy of a partition on a node.

    Attributes:
        node: Id of the node.
        path: Path of the file or folder on the node.
        state: Whether the node still has the unchanged copy.
        detail: The problem of a BROKEN replica, as a sentence; empty: no problem.
    """

    node: str
    path: str
    state: ReplicaState = ReplicaState.UNKNOWN
    detail: str = ""


@dataclass(frozen=True, slots=True)
class DataPartition:
    """A partition of a data set.

    Attributes:
        name: Split and number, such as "train/3" or "eval/0".
        size_bytes: Size of the partition in bytes; 0: unknown.
        sha256: SHA-256 of its bytes; empty: unknown.
        examples: Number of examples; None: unknown.
        replicas: Its replicas. Those of a partition with a URL are on the nodes that have downloaded it.
        url: URL from which nodes download it; empty: it exists only on nodes.
    """

    name: str
    size_bytes: int = 0
    sha256: str = ""
    examples: int | None = None
    replicas: tuple[DataReplica, ...] = ()
    url: str = ""


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set in the catalog of a cluster.

    Attributes:
        name: The name in experiment files.
        partitions: The partitions to train on and to evaluate on.
        registered_at: Time of the registration in seconds since the Unix epoch.
        experiments: Ids of the unfinished experiments that use the data set.
    """

    name: str
    partitions: tuple[DataPartition, ...]
    registered_at: float = 0.0
    experiments: tuple[str, ...] = ()

    @property
    def storage(self) -> Storage:
        """The bytes that replicas use on nodes, compared with a full copy on each of these nodes. BROKEN replicas are not counted."""
        return storage(
            (one.size_bytes, {each.node for each in one.replicas if each.state is not ReplicaState.BROKEN})
            for one in self.partitions
        )
