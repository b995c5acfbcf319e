"""Counts the jobs whose newest snapshot is only on nodes, so that a backup does not have it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hopyard.v1.experiment_pb2 import ExperimentState, Job

ENDED_STATES: Final = tuple(
    ExperimentState.Value(f"EXPERIMENT_STATE_{name}") for name in ("COMPLETED", "STOPPED", "FAILED")
)
"""The numbers of the states of ended experiments."""


def on_nodes_only(jobs: Iterable[bytes]) -> int:
    """Return how many jobs, given as serialized messages, have a newest snapshot that the store does not have."""
    found = 0
    for message in jobs:
        snapshots = Job.FromString(message).snapshots
        found += bool(snapshots) and not max(snapshots, key=lambda one: one.position).stored
    return found
