"""The records of the snapshots on this node: which experiments of which cluster took or need each one."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from pathlib import Path

from hopyard._runtime.snapshot_record import (
    SnapshotRecord,
    owner_elsewhere,
    read_record,
    record_path,
    write_record,
)

_log = logging.getLogger(__name__)


class SnapshotReferences:
    """The experiments that took or need each snapshot, by hash. Equal trainings produce equal snapshots, so there may be several.

    Each pair of a snapshot and an experiment is one small file, so that a killed agent loses none. It also has the id of the cluster to
    which the experiment belongs. So a snapshot that was copied from the folder of another cluster is recognized.

    Args:
        folder: Folder of the records, which must exist; the constructor loads them. None: records are in memory only.
        cluster: Id of the cluster to which new records belong; empty: unknown.

    Attributes:
        folder: Folder of the records; None: in memory only.
        cluster: Id of the cluster to which new records belong; empty: unknown.
    """

    def __init__(self, folder: Path | None = None, cluster: str = "") -> None:
        self.folder = folder
        self.cluster = cluster
        self._records: dict[str, set[SnapshotRecord]] = {}
        damaged = 0
        for path in sorted(folder.iterdir()) if folder is not None else ():
            if (record := read_record(path)) is not None:
                self._records.setdefault(path.name.partition(".")[0], set()).add(record)
            else:
                damaged += not path.name.startswith(".")  # A killed agent has not finished those.
                path.unlink(missing_ok=True)
        if damaged:
            _log.warning(
                "%d damaged records of snapshots in %s were deleted; the snapshots count as unknown", damaged, folder
            )

    def add(self, sha256: str, experiment: str) -> None:
        """Record that a run of an experiment of this cluster took this snapshot, or needs it to start."""
        record = SnapshotRecord(self.cluster, experiment)
        known = self._records.setdefault(sha256, set())
        if record in known:
            return
        known.add(record)
        if self.folder is not None:
            try:
                write_record(self.folder, sha256, record)
            except OSError as error:  # A full disk only affects later agents.
                _log.error("a restarted agent will not know that %s needs %s: %s", experiment, sha256, error)

    def of(self, sha256: str) -> Collection[str]:
        """Return the ids of the experiments of this cluster that are recorded for a snapshot; empty: none is."""
        return {record.experiment for record in self._records.get(sha256, ()) if not self._is_other(record)}

    def elsewhere(self, sha256: str) -> bool:
        """Return whether an experiment of another cluster took or needs a snapshot."""
        return any(map(self._is_other, self._records.get(sha256, ())))

    def owner_elsewhere(self, sha256: str) -> str:
        """Return the id of another cluster to which a snapshot belongs, because no experiment of this one took or needs it; else ""."""
        return owner_elsewhere(self._records.get(sha256, ()), self.cluster)

    def forget(self, sha256: str) -> None:
        """Remove the records of this cluster of a snapshot whose copy on this node it has deleted or no longer needs."""
        self._remove(sha256, [record for record in self._records.get(sha256, ()) if not self._is_other(record)])

    def keep(self, hashes: Iterable[str]) -> None:
        """Remove the records, of all clusters, of all snapshots except those with these hashes."""
        for sha256 in self._records.keys() - set(hashes):
            self._remove(sha256, list(self._records[sha256]))

    def belong_to(self, cluster: str, *, adopt: bool) -> None:
        """Let further records belong to a cluster, and with `adopt` all present ones, too.

        Raises:
            OSError: A record cannot be written. Then this object still belongs to its earlier cluster.
        """
        for sha256, records in list(self._records.items()) if adopt else ():
            others = [record for record in records if record.cluster != cluster]
            for record in others:
                adopted = SnapshotRecord(cluster, record.experiment)
                if self.folder is not None:
                    write_record(self.folder, sha256, adopted)
                records.add(adopted)
            self._remove(sha256, others)
        self.cluster = cluster

    def _is_other(self, record: SnapshotRecord) -> bool:
        return "" not in (record.cluster, self.cluster) and record.cluster != self.cluster

    def _remove(self, sha256: str, records: Iterable[SnapshotRecord]) -> None:
        left = self._records.get(sha256, set())
        for record in records:
            left.discard(record)
            if self.folder is not None:
                record_path(self.folder, sha256, record).unlink(missing_ok=True)
        if not left:
            self._records.pop(sha256, None)
