"""The results of a simulated search, in the form in which a later simulated search can reuse them.

A trial is the training of one configuration.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hopyard.policy.vocabulary import JobState, Report
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.types import EarlierTrial


def trained(stream: Stream) -> tuple[EarlierTrial, ...]:
    """Return the trials of a simulated search, each with its learning curve and its stored snapshots.

    Failed jobs, forks and jobs without reports are omitted.

    Args:
        stream: The simulated stream after the end of the search.
    """
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
    """Return copies of the trials, with the name of their search as prefix of their names and of the hashes of their snapshots.

    The prefix makes trials of several searches distinct, so that they can be combined.

    Args:
        trials: The trials of one search.
        name: The name of the search.
    """
    return tuple(
        replace(
            trial,
            name=f"{name}/{trial.name}",
            snapshots=tuple(replace(info, sha256=f"{name}/{info.sha256}") for info in trial.snapshots),
        )
        for trial in trials
    )
