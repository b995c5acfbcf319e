"""The layout of an agent's data folder."""

from __future__ import annotations

import hashlib
import shutil
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from hopyard._net.server import FolderLock
from hopyard._runtime.snapshot_folder import remove
from hopyard.policy.vocabulary import RunKey

_LONGEST_NAME: Final = 120


class Folders:
    """The agent's data folder.

        snapshots/<sha256>                  snapshots: folders of trainers, or packed files
        needs/<sha256>.*                    the experiments that need a snapshot
        bundles/<sha256>/                   unpacked code
        logs/jobs/<experiment>/<job>.log    output of the job's runs on this node; ranks other than 0: <job>.rank1.log
        logs/runners/<slot>.log          output of runners between runs
        logs/predictors.log                 output of predictors
        logs/commands.jsonl                 the commands that were carried out
        processes/                          the live training processes and predictors
        partitions/<sha256>/                copies of partitions downloaded by URL
        inspected.json                      the cache of hashes of partitions at paths
        scratch/                            temporary; emptied when the agent starts
        agent.id                            the id of this folder
        agent.lock                          held by the agent that uses it

    Ids are opaque, so they are escaped in file names.
    """

    def __init__(self, data: Path) -> None:
        """Lock and create the folders; remove temporary files of an earlier agent.

        Raises:
            Conflict: Another agent uses the data folder.
        """
        self.data = data.absolute()
        self.data.mkdir(parents=True, exist_ok=True)
        self._lock = FolderLock(self.data, "agent")
        self._lock.take()
        try:
            self.home = _home(self.data / "agent.id")
            self._make()
        except BaseException:
            self._lock.give_back()
            raise

    def close(self) -> None:
        """Release the data folder to other agents; safe to call twice."""
        self._lock.give_back()

    def _make(self) -> None:
        self.snapshots = self.data / "snapshots"
        self.needs = self.data / "needs"
        self.bundles = self.data / "bundles"
        self.logs = self.data / "logs"
        self.processes = self.data / "processes"
        self.partitions = self.data / "partitions"
        self._scratch = self.data / "scratch"
        shutil.rmtree(self._scratch, ignore_errors=True)
        for folder in (
            self.snapshots,
            self.needs,
            self.bundles,
            self.logs / "runners",
            self.processes,
            self.partitions,
            self._scratch,
        ):
            folder.mkdir(parents=True, exist_ok=True)
        for partial in self.snapshots.glob(".*"):
            remove(partial)
        for partial in self.bundles.glob(".*"):
            if partial.is_dir():
                shutil.rmtree(partial)
            else:
                partial.unlink()

    def job_log(self, experiment: str, job: str, rank: int = 0) -> Path:
        """Return the path of a job's log, or of the log of another rank of its gangs."""
        return self.logs / "jobs" / _name(experiment) / f"{_name(job)}{f'.rank{rank}' if rank else ''}.log"

    @property
    def inspected(self) -> Path:
        """The file with the cache of hashes of partitions."""
        return self.data / "inspected.json"

    @property
    def commands(self) -> Path:
        """The file with the commands that were carried out."""
        return self.logs / "commands.jsonl"

    @property
    def predictor_log(self) -> Path:
        """The log of all predictor processes."""
        return self.logs / "predictors.log"

    def runner_log(self, slot: str) -> Path:
        """Return the log of a slot's runners."""
        return self.logs / "runners" / f"{_name(slot)}.log"

    def scratch(self, run: RunKey) -> Path:
        """Return the temporary folder of a run."""
        return self._scratch / f"{_name(run.stream)}.{_name(run.job)}.{run.attempt}.{run.rank}"


def _home(file: Path) -> str:
    """Return the id of a data folder, created once and kept."""
    with suppress(FileNotFoundError):
        if known := file.read_text(encoding="ascii", errors="replace").strip():
            return known
    home = uuid.uuid4().hex
    partial = file.with_name(f".{file.name}.partial")
    partial.write_text(home, encoding="ascii")
    partial.replace(file)
    return home


def _name(text: str) -> str:
    """Return a file name for an id: without separators, not "." or "..", and short enough for file systems."""
    escaped = quote(text, safe="").replace(".", "%2E") or "%"
    if len(escaped) <= _LONGEST_NAME:
        return escaped
    return f"{escaped[:60]}~{hashlib.sha256(text.encode()).hexdigest()[:32]}"
