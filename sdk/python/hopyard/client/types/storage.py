"""Logs, files and stored data as the client returns them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hopyard.client.types.experiments import Experiment
from hopyard.client.types.jobs import Snapshot


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A part of the output of one rank of a job: `data` begins at the byte `offset` of the rank's log on the node `node`."""

    node: str
    data: bytes
    offset: int


@dataclass(frozen=True, slots=True)
class Download:
    """A downloaded snapshot.

    Attributes:
        folder: The folder with its files.
        job: Id of the job.
        position: The position at which it was taken.
        sha256: SHA-256 of the packed bytes.
        metric: Name of the experiment's metric.
        value: Value of the metric at that position; None: no report there.
        best_value: The job's best value; None: no report yet.
        best_position: The position of the best value; None: no report yet.
        best_missing: Whether the job has no snapshot at its best position.
    """

    folder: Path
    job: str
    position: int
    sha256: str
    metric: str = ""
    value: float | None = None
    best_value: float | None = None
    best_position: int | None = None
    best_missing: bool = False


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export of an experiment or of a group.

    Attributes:
        file: The written file.
        experiments: Ids of the experiments in it.
        size_bytes: Size of the file.
        events: Number of journal events in the file.
        statistics: Number of reports in the file.
        snapshots: Number of snapshots in the file.
        left_behind: Snapshots that are not in the file, because they were unreadable or not requested. After an import,
            jobs cannot continue from them.
    """

    file: Path
    experiments: tuple[str, ...]
    size_bytes: int
    events: int
    statistics: int
    snapshots: int
    left_behind: tuple[Snapshot, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportedExperiment:
    """The result of an import.

    Attributes:
        experiment: The imported experiment; of a group, its first one.
        snapshots: Number of snapshots that were imported, for all experiments of the group.
    """

    experiment: Experiment
    snapshots: int


@dataclass(frozen=True, slots=True)
class GarbageKind:
    """The garbage of one kind in one place, as a garbage collection found it.

    Attributes:
        kind: Description of the kind, for people, such as "snapshots that no experiment holds".
        place: "store", the id of a node, or the name of a node agent's folder in the data directory.
        count: Number of items.
        size_bytes: Total size of the items.
    """

    kind: str
    place: str
    count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class KeptForOthers:
    """Snapshots that an experiment keeps in the store only so that jobs of other experiments can start from them.

    Attributes:
        experiment: Id of the experiment; of a group, that of its first experiment.
        count: Number of snapshots.
        size_bytes: Total size of the snapshots.
        seconds_again: Measured training time that would be needed to recreate all of them, in seconds.
        given_up: Whether they were deleted, or would be in a dry run.
    """

    experiment: str
    count: int
    size_bytes: int
    seconds_again: float
    given_up: bool


@dataclass(frozen=True, slots=True)
class StoreUse:
    """Usage of the store by the snapshots of all experiments, including pending uploads. Equal contents count once.

    Attributes:
        quota_bytes: Quota of the store; None: no quota.
        used_bytes: Bytes in use.
        needed_bytes: Bytes of snapshots that are needed now. Eviction never deletes them.
        spare: Number of snapshots that may be evicted.
        spare_seconds: Measured training time that would be needed to recreate the `spare` snapshots, in seconds.
        next_bytes: Size of the snapshot that would be evicted first; 0: none.
        next_seconds: Measured training time to recreate that snapshot, in seconds; 0: none.
    """

    quota_bytes: int | None
    used_bytes: int
    needed_bytes: int
    spare: int
    spare_seconds: float
    next_bytes: int
    next_seconds: float


@dataclass(frozen=True, slots=True)
class Garbage:
    """The result of a garbage collection: what it deleted, or would delete.

    Attributes:
        dry_run: Whether it only reported and deleted nothing.
        found: Garbage by kind and place, without empty kinds.
        notes: Sentences about places that could not be inspected or were skipped.
        unneeded: Those of the hashes in the argument `idle` of `AsyncClient.collect_garbage` that no experiment needs.
        kept: Snapshots that experiments keep only for other experiments.
        store: Usage of the store after the collection; None: an older scheduler does not send it.
        experiments: What each experiment or group uses after the collection, the largest first.
    """

    dry_run: bool
    found: tuple[GarbageKind, ...]
    notes: tuple[str, ...] = ()
    unneeded: tuple[str, ...] = ()
    kept: tuple[KeptForOthers, ...] = ()
    store: StoreUse | None = None
    experiments: tuple[ExperimentStorage, ...] = ()


@dataclass(frozen=True, slots=True)
class ExperimentStorage:
    """What the cluster stores of an experiment, or of a group of experiments, which share their journal and snapshots.

    Attributes:
        experiments: Ids of the experiment, or of all members of the group.
        jobs: Number of jobs.
        reports: Number of reports.
        records: Number of records in the journal.
        journal_bytes: Size of these records.
        snapshots: Number of snapshots in the store that no other experiment owns.
        snapshot_bytes: Size of these snapshots.
        shared_snapshots: Number of snapshots that other experiments own, too. A deletion keeps them.
        shared_bytes: Size of these snapshots.
        shared_with: Ids of these other experiments or groups.
        bundles: Number of code bundles that no other experiment has.
        bundle_bytes: Size of these bundles.
        logs: Number of logs on connected nodes.
        log_bytes: Size of these logs.
        absent_nodes: Nodes that are not connected, whose logs are not counted.
    """

    experiments: tuple[str, ...]
    jobs: int
    reports: int
    records: int
    journal_bytes: int
    snapshots: int
    snapshot_bytes: int
    shared_snapshots: int
    shared_bytes: int
    shared_with: tuple[str, ...]
    bundles: int
    bundle_bytes: int
    logs: int
    log_bytes: int
    absent_nodes: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """The bytes that a deletion of these experiments frees.

        They are the sum of `journal_bytes`, `snapshot_bytes`, `bundle_bytes` and `log_bytes`.
        """
        return self.journal_bytes + self.snapshot_bytes + self.bundle_bytes + self.log_bytes
