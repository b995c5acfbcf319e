"""Experiments as the client returns them."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from hopyard._common import formatting
from hopyard.client.display import html
from hopyard.policy.vocabulary.reasons import Argument, ReasonCode


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
