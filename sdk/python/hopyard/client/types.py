"""The values that the client returns: frozen dataclasses and enums. `hopyard.client.wire.converters` converts messages to them."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from hopyard._common import formatting
from hopyard.client.display import html
from hopyard.client.display.job_looks import look_of
from hopyard.policy.vocabulary import JobState, Report
from hopyard.policy.vocabulary.reasons import Argument, ReasonCode

__all__ = [
    "Change",
    "ClusterAddresses",
    "Download",
    "Experiment",
    "ExperimentState",
    "Exported",
    "Garbage",
    "GarbageKind",
    "Hops",
    "ImportedExperiment",
    "Job",
    "JobGone",
    "JobReport",
    "JobState",
    "KeptForOthers",
    "LogChunk",
    "Metric",
    "Node",
    "NodeState",
    "Point",
    "Report",
    "Slot",
    "Snapshot",
    "Statistic",
    "StoreUse",
]


class ShownExperimentState(enum.Enum):
    """The state of an experiment as clients show it (`ExperimentState`): one of those of the engine, or INTERRUPTED.

    INTERRUPTED exists only for clients: the experiment was running when its cluster ended, and no cluster runs in its data directory.
    A cluster that starts there continues it.

    Attributes:
        ended: Whether the state is COMPLETED, STOPPED or FAILED. Such an experiment has no slots and no running jobs; only if it is
            extended, or a job is retried, does it run again.
    """

    ended: bool

    RUNNING = "RUNNING"
    INTERRUPTED = "INTERRUPTED"
    PAUSING = "PAUSING"
    PAUSED = "PAUSED"
    ENDING = "ENDING"
    COMPLETED = "COMPLETED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"

    def __init__(self, name: str) -> None:
        self.ended = name in ("COMPLETED", "STOPPED", "FAILED")


ExperimentState: TypeAlias = ShownExperimentState
"""The name by which clients import the states. The engine and policies have a class of this name without INTERRUPTED."""


class NodeState(enum.Enum):
    """The state of a node.

    UP: it accepts runs. DRAINING: a person drained it, and it still has runs, or snapshots that only it has. DRAINED: a person drained
    it, and nothing on it is needed. LEAVING: its agent is stopping. LOST: its agent is not connected.
    """

    UP = "UP"
    DRAINING = "DRAINING"
    DRAINED = "DRAINED"
    LEAVING = "LEAVING"
    LOST = "LOST"


@dataclass(frozen=True, slots=True)
class Metric:
    """The metric that an experiment optimizes.

    Attributes:
        name: Name of the metric in the reports.
        mode: Whether higher values ("max") or lower values ("min") are better.
        target: The experiment ends when a job reaches this value; None: no target.
        kill_threshold: A policy may terminate a job that stays worse than this value; None: no threshold.
        target_over: Number of a job's last reports whose mean must reach the target, at least 1.
    """

    name: str
    mode: Literal["max", "min"] = "max"
    target: float | None = None
    kill_threshold: float | None = None
    target_over: int = 1

    def better(self, left: float, right: float) -> bool:
        """Return whether `left` is strictly better than `right`.

        A value that is not finite is worse than any finite value. Of two such values, none is better.
        """
        if not math.isfinite(left):
            return False
        if not math.isfinite(right):
            return True
        return left > right if self.mode == "max" else left < right


@dataclass(frozen=True, slots=True)
class Hops:
    """Counters of the transfers of an experiment's snapshots between agents and the snapshot store.

    Attributes:
        direct: Number of runs that fetched their snapshot from another agent.
        direct_bytes: Bytes of these snapshots.
        fetched: Number of runs that fetched their snapshot from the store.
        fetched_bytes: Bytes of these snapshots.
        stored: Number of snapshots that were uploaded to the store.
        stored_bytes: Bytes of these snapshots.
    """

    direct: int = 0
    direct_bytes: int = 0
    fetched: int = 0
    fetched_bytes: int = 0
    stored: int = 0
    stored_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment and its progress.

    Attributes:
        id: Opaque id, unique in the cluster.
        name: The name in the experiment file.
        state: The current state.
        reason: Why the experiment is in this state, as a sentence; empty while it runs normally.
        reason_code: The code of the reason, for programs; None: no reason.
        reason_args: The arguments of the reason by name.
        spec: The complete specification.
        bundle: SHA-256 of the code bundle; empty: no bundle.
        metric: The metric that the experiment optimizes.
        created_at: Time of creation in seconds since the Unix epoch.
        ended_at: Time of the end in seconds since the Unix epoch; None while the experiment has not ended.
        jobs: Number of jobs by the name of their state.
        best_job: Id of the job with the best value so far; None before the first report with a finite
            value.
        best_value: The best value so far; None: there is no `best_job`.
        best_position: The position of the best value; 0: there is no `best_job`.
        slots: Number of slots with a run of the experiment now. The idle slots reserved for it are added unless it is in a group.
        share: Number of slots that the experiment may use now.
        running_seconds: Seconds from the creation until now or its end, without those in which the experiment was paused.
        group: Id of the first experiment of the group; the experiment's own id if it is in no group.
        warning: A problem that does not stop the experiment, as a sentence; empty: none.
        snapshot_bytes: Size of all its snapshots. Equal contents count once.
        hops: Transfers of its snapshots; in a group, those of all experiments of the group.
        slot_seconds: Slot time in seconds that is charged to the experiment: that of its own runs, and in a group an equal
            part of runs that several experiments need.
        note: A remark of the policy about the settings, such as too few jobs for its rungs. Only `create` returns it.
            Empty: none.
    """

    id: str
    name: str
    state: ExperimentState
    metric: Metric
    reason: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict)
    bundle: str = ""
    created_at: float = 0.0
    ended_at: float | None = None
    jobs: Mapping[str, int] = field(default_factory=dict)
    best_job: str | None = None
    best_value: float | None = None
    best_position: int = 0
    slots: int = 0
    share: int = 0
    running_seconds: float = 0.0
    group: str = ""
    warning: str = ""
    snapshot_bytes: int = 0
    hops: Hops = Hops()
    slot_seconds: float = 0.0
    note: str = ""
    reason_code: ReasonCode | None = None
    reason_args: Mapping[str, Argument] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return id, state, jobs by state, and the best value. `dataclasses.asdict` has all fields."""
        best = f", best {self._best}" if self.best_job is not None else ""
        return f"<Experiment {self.id} {self.state.value}: {self._jobs}{best}>"

    def _repr_html_(self) -> str:
        fields = {"state": self.state.value, "reason": self.reason, "jobs": self._jobs, "warning": self.warning}
        fields["best"] = self._best if self.best_job is not None else ""
        return html.card(f"Experiment {self.id}", fields)

    @property
    def _jobs(self) -> str:
        counts = {state: amount for state, amount in self.jobs.items() if amount}
        total = formatting.count(sum(counts.values()), "job")
        return f"{total} ({', '.join(f'{amount} {state}' for state, amount in counts.items())})" if counts else total

    @property
    def _best(self) -> str:
        return f"{self.metric.name} {formatting.number(self.best_value)} (job {self.best_job} at {self.best_position})"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The training state of a job at one position, named by the SHA-256 of its packed bytes.

    Attributes:
        job: Id of the job.
        position: The position at which it was taken.
        sha256: SHA-256 of the packed bytes, lower-case hexadecimal.
        size_bytes: Size of the packed bytes.
        provider: The mechanism that took it and can load it, such as "framework" or "criu".
        nodes: Ids of the nodes that have it on disk.
        stored: Whether the snapshot store has it.
    """

    job: str
    position: int
    sha256: str
    size_bytes: int = 0
    provider: str = "framework"
    nodes: tuple[str, ...] = ()
    stored: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """A job: the training of one configuration.

    Attributes:
        experiment: Id of the experiment.
        id: Id of the job, unique in the group of the experiment.
        state: The current state. In an ended experiment every job has ended: one that could be trained further is TERMINATED.
        reason: Why the job waits, failed or ended, as a sentence; empty while it trains.
        hyperparameters: The configuration: the value of each hyperparameter by name.
        position: How far its newest run has trained, in the experiment's unit.
        attempt: Number of runs so far, including the current one.
        slots: Ids of the slots of the current run, in order of the rank; empty: it does not run.
        priority: Order among the idle jobs, higher first; None: 0.
        parent: Id of the job whose snapshot this job started from (a fork); None: it is not a fork.
        fork_position: Position of that snapshot; 0: it is not a fork.
        best_value: Best value of the metric so far; None: no report with a finite value yet.
        best_position: Position of the best value; meaningless if `best_value` is None.
        last_value: Newest value of the metric; None: no report yet.
        seconds: Training time in seconds: the sum over its reports, without those that a run repeats after a loss.
        failures: Number of runs that failed because of an error in the user's code.
        suspends: Number of runs that ended as SUSPENDED or PREEMPTED.
        snapshots: The snapshots that exist.
        group: Id of the first experiment of the group, under which nodes store the job's logs.
        shared_position: Position up to which the job reuses results of other jobs, if beyond `position`; 0: none.
        reason_code: The code of the reason, for programs; None: no reason.
        reason_args: The arguments of the reason by name.
    """

    experiment: str
    id: str
    state: JobState
    reason: str = ""
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    position: int = 0
    attempt: int = 0
    slots: tuple[str, ...] = ()
    priority: float | None = None
    parent: str | None = None
    fork_position: int = 0
    best_value: float | None = None
    best_position: int = 0
    last_value: float | None = None
    seconds: float = 0.0
    failures: int = 0
    suspends: int = 0
    snapshots: tuple[Snapshot, ...] = ()
    group: str = ""
    shared_position: int = 0
    reason_code: ReasonCode | None = None
    reason_args: Mapping[str, Argument] = field(default_factory=dict)

    @property
    def reached(self) -> int:
        """The highest position for which the job has results, from its own training or from jobs with the same training; 0: none."""
        return max(self.position, self.shared_position)

    def __repr__(self) -> str:
        """Return id, state, position, best value and hyperparameters. `dataclasses.asdict` has all fields."""
        best = f", best {self._best}" if self.best_value is not None else ""
        values = f", {formatting.hyperparameters(self.hyperparameters)}" if self.hyperparameters else ""
        return f"<Job {self.id} of {self.experiment} {self.state.value} at {self.position}{best}{values}>"

    def _repr_html_(self) -> str:
        look = look_of(self.state, self.reason_code)
        fields = {"state": f"{look.symbol} {look.word} at {self.position}", "reason": self.reason}
        fields["best"] = self._best if self.best_value is not None else ""
        fields |= {name: formatting.value(given) for name, given in sorted(self.hyperparameters.items())}
        return html.card(f"Job {self.id} of {self.experiment}", fields, {"state": look.color})

    @property
    def _best(self) -> str:
        return f"{formatting.number(self.best_value)} at {self.best_position}"


@dataclass(frozen=True, slots=True)
class JobReport:
    """A report of a job, as `AsyncClient.watch` yields it.

    Attributes:
        job: Id of the job.
        report: The position, the metrics and the training time.
        at: When the report was made, by the clock of the node that trained, in seconds since the Unix epoch.
    """

    job: str
    report: Report
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class JobGone:
    """The notice that the job with the id `job` was removed from its experiment.

    The job was in the state CREATING, and the generator had no further configuration for it.
    """

    job: str


Change = Experiment | Job | JobReport | JobGone
"""An item that `AsyncClient.watch` yields: the new state of the experiment or of a job, a report, or the removal of a job."""


@dataclass(frozen=True, slots=True)
class Statistic:
    """A report of a job as AppStat stores it. Reports of older attempts and repeated reports of the same training are not stored.

    Attributes:
        job: Id of the job.
        attempt: Number of the run that sent the report.
        report: The position, the metrics and the training time.
        at: When the report was made, by the clock of the node that trained, in seconds since the Unix epoch.
    """

    job: str
    attempt: int
    report: Report
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a learning curve: the value of one metric at a position.

    Attributes:
        position: The position, in the experiment's unit.
        value: Value of the metric. Partial evaluations at one position are averaged, weighted by their number of
            examples.
        seconds: Training time up to this position, in seconds.
    """

    position: int
    value: float
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Slot:
    """One schedulable place on a node.

    Attributes:
        id: "NODE/INDEX", such as "node1/0".
        node: Id of the node.
        experiment: Id of the experiment whose job runs on it, else of the one that reserves it (of a group, its first
            experiment); None: none.
        job: Id of the job that runs on it; None: it is idle.
        attempt: Number of the run on it within its job, from 1; meaningless if `job` is None.
        cpus: Number of CPU threads of a training process on it.
        gpus: Indices of the GPUs that a training process on it sees.
        rank: Rank in its gang of the process that runs on it; 0 without a gang.
        world: Number of slots of the run on it, which is the number of ranks of the gang; 1 without a gang.
        hardware: The kind of host, as a text that is equal for hosts on which training has the same speed; empty: unknown.
    """

    id: str
    node: str
    experiment: str | None = None
    job: str | None = None
    attempt: int = 0
    cpus: int = 0
    gpus: tuple[int, ...] = ()
    rank: int = 0
    world: int = 1
    hardware: str = ""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU, or a MIG instance of a GPU, that slots of a node use.

    Attributes:
        uuid: "GPU-..." or "MIG-..."; empty: unknown.
        index: Index on the node, as nvidia-smi shows it; of a MIG instance: the index of its GPU.
        model: Name of the model, such as "NVIDIA A100-SXM4-80GB"; empty: unknown.
        memory_bytes: Size of its memory; 0: unknown.
        memory_used_bytes: Memory that all processes on the node use now; None: unknown.
        utilization: Part of the time in which it computes now, 0 to 1; None: unknown, such as of MIG instances.
        slots: Ids of the slots whose training processes see it.
    """

    uuid: str
    index: int
    model: str
    memory_bytes: int
    memory_used_bytes: int | None = None
    utilization: float | None = None
    slots: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """A host with a node agent.

    Attributes:
        id: Id of the node.
        address: Address of its agent.
        state: Whether it accepts runs.
        slots: Its slots.
        silent_seconds: Seconds since the scheduler received the last message of the agent.
        gpus: The GPUs of its slots.
        state_seconds: Seconds since it entered its state (of a drained node: since it was drained); None: unknown.
        reason: Why it is in its state, as a sentence; empty: it is UP.
        reason_code: The code of the reason, for programs; None: no reason.
        reason_args: The arguments of the reason by name.
        drain_seconds_left: Seconds until the deadline of its drain, at least 0; None: it has none.
    """

    id: str
    address: str
    state: NodeState
    slots: tuple[Slot, ...] = ()
    silent_seconds: float = 0.0
    gpus: tuple[Gpu, ...] = ()
    state_seconds: float | None = None
    reason: str = ""
    reason_code: ReasonCode | None = None
    reason_args: Mapping[str, Argument] = field(default_factory=dict)
    drain_seconds_left: float | None = None


@dataclass(frozen=True, slots=True)
class ClusterAddresses:
    """Addresses and version of the services of a cluster.

    Attributes:
        epoch: Epoch of the scheduler.
        appstat_address: Address of AppStat.
        version: Version of the running Hopyard distribution.
        trouble: A problem that blocks the whole cluster now, such as a full journal disk, as a sentence; empty: none.
        now: The scheduler's clock at the time of the response, in seconds since the Unix epoch; None: an older
            scheduler does not send it.
    """

    epoch: int
    appstat_address: str
    version: str
    trouble: str = ""
    now: float | None = None


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
