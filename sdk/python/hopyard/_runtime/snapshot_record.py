"""The record of a snapshot in the data folder of an agent: which experiment of which cluster took or needs it.

The hash of a snapshot does not depend on its record, because equal trainings in several clusters give equal hashes.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from hopyard._common.private_files import write_private

CLUSTER_FILE: Final = "agent.cluster"
"""Name of the file in the data folder of an agent that contains the id of the cluster to which the folder belongs."""

RECORDS: Final = "needs"
"""Name of the folder in the data folder of an agent that contains the records of snapshots."""


class SnapshotRecord(NamedTuple):
    """One experiment that took or needs a snapshot.

    Attributes:
        cluster: Id of the cluster to which the experiment belongs; empty: unknown.
        experiment: Id of the experiment (or group).
    """

    cluster: str
    experiment: str


def record_path(folder: Path, sha256: str, record: SnapshotRecord) -> Path:
    """Return the path of a record in a folder of records. Each pair of a snapshot and a record has one file."""
    return folder / f"{sha256}.{hashlib.sha256(json.dumps(record).encode()).hexdigest()[:32]}"


def write_record(folder: Path, sha256: str, record: SnapshotRecord) -> None:
    """Write a record atomically, without a flush to disk; raise OSError if it cannot be written."""
    content = json.dumps({"cluster": record.cluster, "experiment": record.experiment}).encode()
    write_private(record_path(folder, sha256, record), content, durable=False)


def read_record(path: Path) -> SnapshotRecord | None:
    """Return the record in a file; None: it is damaged, as after a power failure, or unfinished.

    Raises:
        OSError: The file cannot be read.
    """
    with suppress(ValueError):
        match json.loads(path.read_bytes()):
            case {"cluster": str(cluster), "experiment": str(experiment)} if not path.name.startswith("."):
                return SnapshotRecord(cluster, experiment)
    return None


def owner_elsewhere(records: Iterable[SnapshotRecord], cluster: str) -> str:
    """Return the id of the cluster to which a snapshot with these records belongs; empty: it belongs to none or also to `cluster`.

    Args:
        records: The records of the snapshot.
        cluster: Id of a cluster; empty: unknown, then the result is empty.
    """
    clusters = {record.cluster for record in records}
    return min(clusters) if cluster and clusters and not clusters & {"", cluster} else ""


def snapshots_elsewhere(agent: Path) -> dict[str, str]:
    """Return the snapshots that belong to another cluster than the data folder of an agent in which their records are.

    Returns:
        The id of the other cluster, by the hash of the snapshot. The snapshot need not exist any more.

    Raises:
        OSError: A file cannot be read.
    """
    try:
        cluster = (agent / CLUSTER_FILE).read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        return {}
    records = defaultdict[str, list[SnapshotRecord]](list)
    for path in (agent / RECORDS).glob("*"):
        with suppress(FileNotFoundError):
            if (record := read_record(path)) is not None:
                records[path.name.partition(".")[0]].append(record)
    owners = {sha256: owner_elsewhere(found, cluster) for sha256, found in records.items()}
    return {sha256: owner for sha256, owner in owners.items() if owner}
