"""Which experiments the snapshots on a node are for: their runs took or got them here. Kept on the disk for later agents."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterable
from pathlib import Path

_log = logging.getLogger(__name__)


class SnapshotReferences:
    """Experiments by snapshot. Equal trainings have equal snapshots, so one copy may be for several.

    A small file tells of each, so that none is forgotten when the agent is killed.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Go on with what `folder`, which exists, tells of; None: nothing outlives this agent."""
        self._folder = folder
        self._experiments: dict[str, set[str]] = {}
        for path in folder.iterdir() if folder is not None else ():
            self._experiments.setdefault(path.name.partition(".")[0], set()).add(path.read_text())

    def add(self, sha256: str, experiment: str) -> None:
        """A run of an experiment took a snapshot, or is about to get it here."""
        known = self._experiments.setdefault(sha256, set())
        if experiment in known:
            return
        known.add(experiment)
        if self._folder is not None:
            try:
                self._file(self._folder, sha256, experiment).write_text(experiment)
            except OSError as error:  # A full disk costs the memory of later agents only.
                _log.error(
                    "an agent that is started anew will not know that %s needs %s: %s", experiment, sha256, error
                )

    def of(self, sha256: str) -> Collection[str]:
        """The experiments that a snapshot is for, as far as that is known."""
        return self._experiments.get(sha256, ())

    def forget(self, sha256: str) -> None:
        """The copy is not here any more."""
        for experiment in self._experiments.pop(sha256, ()):
            if self._folder is not None:
                self._file(self._folder, sha256, experiment).unlink(missing_ok=True)

    def keep(self, hashes: Iterable[str]) -> None:
        """Only these snapshots are here."""
        for sha256 in self._experiments.keys() - set(hashes):
            self.forget(sha256)

    @staticmethod
    def _file(folder: Path, sha256: str, experiment: str) -> Path:
        return folder / f"{sha256}.{hashlib.sha256(experiment.encode()).hexdigest()[:32]}"
