"""The values that the client returns: frozen dataclasses and enums. `hopyard.client.wire.converters` converts messages to them."""

from __future__ import annotations

from hopyard.client.types.cluster import ClusterAddresses, Gpu, Node, NodeState, Slot
from hopyard.client.types.experiments import Experiment, ExperimentState, Hops, Metric, ShownExperimentState
from hopyard.client.types.jobs import Job, JobGone, JobReport, Point, Snapshot, Statistic
from hopyard.client.types.storage import (
    Download,
    ExperimentStorage,
    Exported,
    Garbage,
    GarbageKind,
    ImportedExperiment,
    KeptForOthers,
    LogChunk,
    StoreUse,
)
from hopyard.policy.vocabulary import JobState, Report

__all__ = [
    "Change",
    "ClusterAddresses",
    "Download",
    "Experiment",
    "ExperimentState",
    "ExperimentStorage",
    "Exported",
    "Garbage",
    "GarbageKind",
    "Gpu",
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
    "ShownExperimentState",
    "Slot",
    "Snapshot",
    "Statistic",
    "StoreUse",
]

Change = Experiment | Job | JobReport | JobGone
"""An item that `AsyncClient.watch` yields: the new state of the experiment or of a job, a report, or the removal of a job."""
