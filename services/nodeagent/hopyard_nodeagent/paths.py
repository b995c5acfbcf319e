"""The layout of an agent's data folder, and the names of its files."""

from __future__ import annotations

import hashlib
import shutil
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from hopyard._common.private_files import FOLDER_MODE, make_private_folder, write_private
from hopyard._net.server import FolderLock
from hopyard._runtime.snapshot_folder import remove
from hopyard._runtime.snapshot_record import CLUSTER_FILE, RECORDS
from hopyard.policy.vocabulary import RunKey

_LONGEST_NAME: Final = 120


class AgentFolders:
    """The data folder of an agent: locks it, and provides the paths of its files and subfolders.

        snapshots/<sha256>                  snapshots: folders of trainers, or packed files
        needs/<sha256>.*                    which experiments of which cluster took or need a snapshot, one file per pair
        .bundles/<sha256>.packed            code bundles
        .bundles/<sha256>/                  their unpacked files; hidden, so that pytest does not collect them
        logs/jobs/<experiment>/<job>.log    output of the job's runs on this node; ranks other than 0: <job>.rank1.log
        logs/jobs/<experiment>/<log>.cut    which part was cut out of the log
        logs/runners/<slot>.log             output of training processes between runs
        logs/predictors.log                 output of predictors
        logs/commands.jsonl                 the scheduler's commands that were executed
        processes/                          records of live training processes and predictors
        partitions/<sha256>/                copies of partitions downloaded by URL
        inspected.json                      the cache of hashes of partitions at paths
        scratch/                            temporary files of runs; emptied when the agent starts
        agent.id                            the random id of this data folder
        agent.cluster                       the id of the cluster to which this data folder belongs
        agent.lock                          file that the agent locks while it uses the data folder

    Ids of experiments, jobs and slots may contain any character, so they are escaped in file names.

    The constructor locks the data folder, creates its subfolders, and removes temporary files of an earlier agent.

    Args:
        data: The data folder; created if it does not exist. It and its subfolders are private.

    Raises:
        InvalidInput: Other users could read or replace the data folder (`make_private_folder`).
        Conflict: Another agent uses the data folder.
    """

    def __init__(self, data: Path) -> None:
        self.data = data.absolute()
        make_private_folder(self.data)
        self._lock = FolderLock(self.data, "agent")
        self._lock.take()
        try:
            self.home = _home(self.data / "agent.id")
            self.cluster = _stored(self.data / CLUSTER_FILE)
            self._make()
        except BaseException:
            self._lock.give_back()
            raise

    def belong_to(self, cluster: str) -> None:
        """Record that this data folder belongs to a cluster from now on."""
        write_private(self.data / CLUSTER_FILE, cluster.encode("ascii", "replace"))
        self.cluster = cluster

    def close(self) -> None:
        """Release the lock on the data folder. Safe to call twice."""
        self._lock.give_back()

    def _make(self) -> None:
        self.snapshots = self.data / "snapshots"
        self.needs = self.data / RECORDS
        self.bundles = self.data / ".bundles"
        self.logs = self.data / "logs"
        self.processes = self.data / "processes"
        self.partitions = self.data / "partitions"
        self._scratch = self.data / "scratch"
        shutil.rmtree(self._scratch, ignore_errors=True)
        for folder in (
            self.snapshots,
            self.needs,
            self.bundles,
            self.logs,
            self.logs / "jobs",
            self.logs / "runners",
            self.processes,
            self.partitions,
            self._scratch,
        ):
            folder.mkdir(FOLDER_MODE, exist_ok=True)
        for partial in self.snapshots.glob(".*"):
            remove(partial)
        for partial in self.bundles.glob(".*"):
            if partial.is_dir():
                shutil.rmtree(partial)
            else:
                partial.unlink()

    def job_log(self, experiment: str, job: str, rank: int = 0) -> Path:
        """Return the path of a job's log on this node. Each rank of a gang has its own log; jobs on one slot have rank 0."""
        return job_log(self.data, experiment, job, rank)

    @property
    def inspected(self) -> Path:
        """The file that stores the cache of hashes of partitions."""
        return self.data / "inspected.json"

    @property
    def commands(self) -> Path:
        """The log file of the commands from the scheduler that agents have executed."""
        return self.logs / "commands.jsonl"

    @property
    def predictor_log(self) -> Path:
        """The log file of all predictor processes."""
        return self.logs / "predictors.log"

    def runner_log(self, slot: str) -> Path:
        """Return the log file for the output that a slot's runners write between runs."""
        return self.logs / "runners" / f"{_name(slot)}.log"

    def scratch(self, run: RunKey) -> Path:
        """Return the path of the temporary folder of a run; the folder is not created."""
        return self._scratch / f"{_name(run.stream)}.{_name(run.job)}.{run.attempt}.{run.rank}"


def job_log(data: Path, experiment: str, job: str, rank: int = 0) -> Path:
    """Return the path of the log of one rank of a job in the data folder `data` of an agent. Jobs on one slot have only rank 0."""
    return data / "logs" / "jobs" / _name(experiment) / f"{_name(job)}{f'.rank{rank}' if rank else ''}.log"


def _home(file: Path) -> str:
    """Return the random id of a data folder. The file `file` stores it; create it if it does not exist."""
    if known := _stored(file):
        return known
    home = uuid.uuid4().hex
    write_private(file, home.encode("ascii"), durable=False)
    return home


def _stored(file: Path) -> str:
    """Return the id in a file; empty: there is none."""
    with suppress(FileNotFoundError):
        return file.read_text(encoding="ascii", errors="replace").strip()
    return ""


def _name(text: str) -> str:
    """Return a file name for an id: without separators, not "." or "..", and at most `_LONGEST_NAME` characters long.

    Different ids have different names.
    """
    escaped = quote(text, safe="").replace(".", "%2E") or "%"
    if len(escaped) <= _LONGEST_NAME:
        return escaped
    return f"{escaped[:60]}~{hashlib.sha256(text.encode()).hexdigest()[:32]}"
