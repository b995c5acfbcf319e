"""Records which experiments need each snapshot on this node, in files that later agents read."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterable
from pathlib import Path

_log = logging.getLogger(__name__)


class SnapshotReferences:
    """The experiments that need each snapshot, by hash. Equal trainings produce equal snapshots, so several may need the same one.

    Each pair of a snapshot and an experiment is one small file, so that a killed agent loses none.

    Args:
        folder: Folder of the records, which must exist; the constructor loads them. None: records are in memory only.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._experiments: dict[str, set[str]] = {}
        for path in folder.iterdir() if folder is not None else ():
            self._experiments.setdefault(path.name.partition(".")[0], set()).add(path.read_text())

    def add(self, sha256: str, experiment: str) -> None:
        """Record that a run of an experiment took this snapshot, or needs it to start."""
        known = self._experiments.setdefault(sha256, set())
        if experiment in known:
            return
        known.add(experiment)
        if self._folder is not None:
            try:
                self._file(self._folder, sha256, experiment).write_text(experiment)
            except OSError as error:  # A full disk only affects later agents.
                _log.error("a restarted agent will not know that %s needs %s: %s", experiment, sha256, error)

    def of(self, sha256: str) -> Collection[str]:
        """Return the ids of the experiments that are recorded for a snapshot; empty: none is."""
        return self._experiments.get(sha256, ())

    def forget(self, sha256: str) -> None:
        """Remove the records of a snapshot whose copy on this node is deleted."""
        for experiment in self._experiments.pop(sha256, ()):
            if self._folder is not None:
                self._file(self._folder, sha256, experiment).unlink(missing_ok=True)

    def keep(self, hashes: Iterable[str]) -> None:
        """Remove the records of all snapshots except those with these hashes."""
        for sha256 in self._experiments.keys() - set(hashes):
            self.forget(sha256)

    @staticmethod
    def _file(folder: Path, sha256: str, experiment: str) -> Path:
        return folder / f"{sha256}.{hashlib.sha256(experiment.encode()).hexdigest()[:32]}"
