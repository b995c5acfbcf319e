"""The results of a simulated search, in the form that a later search uses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hopyard.policy.vocabulary import JobState, Report
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.types import EarlierTrial


def trained(stream: Stream) -> tuple[EarlierTrial, ...]:
    """Return the trained trials, each with its curve and its stored snapshots."""
    found = []
    for job in stream.jobs.values():
        points = stream.curve(job)
        if not points or job.hyperparameters is None or job.copied or job.state is JobState.FAILED:
            continue
        reports = tuple(Report(point.position, point.metrics, point.seconds) for point in points)
        saved = tuple(entry.info for entry in stream.snapshots.of(job.id) if entry.stored)
        found.append(EarlierTrial(f"{job.experiment.id}/{job.id}", job.hyperparameters, reports, None, saved))
    return tuple(found)


def named(trials: Iterable[EarlierTrial], name: str) -> tuple[EarlierTrial, ...]:
    """Prefix the trials with the name of their search, so that those of several searches can be combined."""
    return tuple(
        replace(
            trial,
            name=f"{name}/{trial.name}",
            snapshots=tuple(replace(info, sha256=f"{name}/{info.sha256}") for info in trial.snapshots),
        )
        for trial in trials
    )
