"""The data sets of the catalog as the client returns them."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from hopyard._runtime.datasets.usage import Storage, storage


class ReplicaState(enum.Enum):
    """The state of a replica: PRESENT (unchanged), BROKEN (lost or changed), AWAY (node not connected), UNKNOWN (not reported)."""

    PRESENT = "PRESENT"
    BROKEN = "BROKEN"
    AWAY = "AWAY"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class DataReplica:
    """A copy of a partition at a path on a node. `detail` describes the problem of a BROKEN one."""

    node: str
    path: str
    state: ReplicaState = ReplicaState.UNKNOWN
    detail: str = ""


@dataclass(frozen=True, slots=True)
class DataPartition:
    """A partition of a data set.

    Attributes:
        name: Split and number, such as "train/3" or "eval/0".
        size_bytes: Size of the partition.
        sha256: SHA-256 of its bytes.
        examples: Number of examples; None: unknown.
        replicas: Its replicas; of a partition with a URL, the nodes that have downloaded it.
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
    """A data set of the catalog. `experiments` are the ids of the unfinished experiments that use it."""

    name: str
    partitions: tuple[DataPartition, ...]
    registered_at: float = 0.0
    experiments: tuple[str, ...] = ()

    @property
    def storage(self) -> Storage:
        """Bytes that the nodes hold without broken replicas, compared with a full copy of the data set on each of these nodes."""
        return storage(
            (one.size_bytes, {each.node for each in one.replicas if each.state is not ReplicaState.BROKEN})
            for one in self.partitions
        )
