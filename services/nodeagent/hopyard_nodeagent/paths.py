"""Where an agent keeps what on its disk."""

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
from hopyard_nodeagent.runs.run_key import RunKey

_LONGEST_NAME: Final = 120


class Folders:
    """The agent's data folder.

        snapshots/<sha256>                  snapshots: what trainers saved, or packed files
        needs/<sha256>.*                    which experiments they are for
        bundles/<sha256>/                   unpacked code
        logs/jobs/<experiment>/<job>.log    what the job's runs on this node printed; other ranks than 0: <job>.rank1.log
        logs/runners/<machine>.log          what runners say between runs
        logs/predictors.log                 what predictors print
        logs/commands.jsonl                 the commands that were carried out
        processes/                          the training processes and predictors that live
        partitions/<sha256>/                copies of partitions that were got by URL
        inspected.json                      what was read of partitions at paths
        scratch/                            emptied at every start of the agent
        agent.id                            what names the folder
        agent.lock                          held by the one agent that uses it

    Ids are opaque, so they are escaped where they become file names.
    """

    def __init__(self, data: Path) -> None:
        """Lock and make the folders; what an earlier agent left half-done is removed.

        Raises:
            Conflict: another agent uses the data folder.
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
        """Leave the data folder to another agent; safe to call twice."""
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
        """The log of a job, or of another rank than 0 of its gangs."""
        return self.logs / "jobs" / _name(experiment) / f"{_name(job)}{f'.rank{rank}' if rank else ''}.log"

    @property
    def inspected(self) -> Path:
        """What was read of partitions at paths."""
        return self.data / "inspected.json"

    @property
    def commands(self) -> Path:
        """The record of the commands that were carried out."""
        return self.logs / "commands.jsonl"

    @property
    def predictor_log(self) -> Path:
        """The log of all processes that predict."""
        return self.logs / "predictors.log"

    def runner_log(self, machine: str) -> Path:
        """The log of a machine's runners."""
        return self.logs / "runners" / f"{_name(machine)}.log"

    def scratch(self, run: RunKey) -> Path:
        """A folder for the files of one run."""
        return self._scratch / f"{_name(run.experiment)}.{_name(run.job)}.{run.attempt}.{run.rank}"


def _home(file: Path) -> str:
    """What names a data folder, through all starts of its agents."""
    with suppress(FileNotFoundError):
        if known := file.read_text(encoding="ascii", errors="replace").strip():
            return known
    home = uuid.uuid4().hex
    partial = file.with_name(f".{file.name}.partial")
    partial.write_text(home, encoding="ascii")
    partial.replace(file)
    return home


def _name(text: str) -> str:
    """A file name for an id: no separators, never "." or "..", no longer than file systems allow."""
    escaped = quote(text, safe="").replace(".", "%2E") or "%"
    if len(escaped) <= _LONGEST_NAME:
        return escaped
    return f"{escaped[:60]}~{hashlib.sha256(text.encode()).hexdigest()[:32]}"
