"""What came of an experiment: whether its metric was reported, and with which error a command ends."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from hopyard._common import formatting
from hopyard.client.types import Experiment, ExperimentState, Job, JobState, Statistic

if TYPE_CHECKING:
    from hopyard.client.async_client import AsyncClient

_NAMED_JOBS: Final = 5

ONLY_PAUSED: Final = "nothing is left to train but"
"""How the reason of an experiment begins that goes on only when a person resumes or ends a job."""

ENDED_BY_ITSELF: Final = "its program ended by itself"
"""How the reason of a COMPLETED job begins that the experiment would have trained further."""

_QUIET: Final = (
    "reached position",
    "suspended at",
    "preempted",
    "waits for its first slot",
    "starting on",
    "trained to its end",
    "training",
    "evaluating",
    "profiling",
    "its profile was",
)
"""Reasons that begin so say no more than the job's state and position do."""


ASKED: Final = "waits for the policy"
"""The reason of an experiment whose policy was asked just now."""

NOTHING_LEFT: Final = "the policy has nothing left to do"
"""The reason of an experiment that ended while jobs wait."""

BACK_AT_START: Final = "back at position 0, as no snapshot of it was saved"
"""How the reason of a job begins that left its slot, and begins again when it gets another."""

STARTS_OVER: Final = (
    "its program saves no checkpoint: every pause and every promotion trains a job from its beginning again; "
    "docs/programs.md shows how a program saves"
)


def nobody_trained(experiment: Experiment, jobs: Sequence[Job]) -> str:
    """A line on a search that ended well and trained no job to its end; empty: one is, or that was no aim."""
    limit = experiment.spec.get("stop", {}).get("max_iterations")
    infinite = experiment.spec.get("policy", {}).get("infinite", False)
    if experiment.state is not ExperimentState.COMPLETED or experiment.reason != NOTHING_LEFT or not limit or infinite:
        return ""
    if not jobs or any(job.state is JobState.COMPLETED for job in jobs):
        return ""
    furthest = max(max(job.position, job.best_position) for job in jobs)
    return (
        f"no job was trained to {limit}: the furthest came to {furthest}, and too few came there for one to go on; "
        f"more jobs make promotions, also of those that wait: hopyard extend {experiment.id} --jobs N; "
        f"hopyard rungs {experiment.id} shows how many stand where"
    )


def note_metrics(seen: dict[str, bool], metrics: Mapping[str, float]) -> None:
    """Take the names of a report's metrics into `seen`: whether each has ever been finite."""
    for name, value in metrics.items():
        seen[name] = seen.get(name, False) or math.isfinite(value)


def metrics_seen(statistics: Iterable[Statistic]) -> dict[str, bool]:
    """The names of all reported metrics, and whether each has ever been finite."""
    seen: dict[str, bool] = {}
    for one in statistics:
        note_metrics(seen, one.report.metrics)
    return seen


def metric_trouble(name: str, seen: Mapping[str, bool]) -> str:
    """What is wrong with a metric, given what `metrics_seen` found; empty: nothing, or nothing was reported yet."""
    if not seen or seen.get(name):
        return ""
    if name in seen:
        return f"{name} is reported, but never finite"
    near = difflib.get_close_matches(name, list(seen), n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"{name} is not reported; reported are {', '.join(sorted(seen))}{hint}"


async def metric_error(client: AsyncClient, experiment: Experiment, jobs: Sequence[Job] | None = None) -> str:
    """The error of an experiment whose metric no job has reported; empty: it was reported, or none has trained.

    Args:
        client: Asks for the reports, if there is no best value.
        experiment: In its present state.
        jobs: Its jobs, when they are known.
    """
    if experiment.best_value is not None and math.isfinite(experiment.best_value):
        return ""
    seen = metrics_seen(await client.statistics(experiment))
    if seen:
        return metric_trouble(experiment.metric.name, seen)
    there = jobs if jobs is not None else await client.jobs(experiment)
    if any(job.state is JobState.COMPLETED for job in there):
        return f"{experiment.metric.name} is not reported: no job has reported any metric"
    return ""


async def ended_error(client: AsyncClient, experiment: Experiment, jobs: Sequence[Job] | None = None) -> str:
    """The one error that an ended experiment ends a command with; empty: it went well."""
    there = jobs if jobs is not None else await client.jobs(experiment)
    if there and all(job.state is JobState.FAILED for job in there):
        return f"every job failed, the first with: {formatting.first_line(there[0].reason) or 'no message'}"
    if experiment.state is ExperimentState.FAILED:
        return f"{experiment.name} ({experiment.id}) failed: {formatting.first_line(experiment.reason) or 'no message'}"
    return await metric_error(client, experiment, there)


def why(experiment: Experiment, job: Job) -> str:
    """The first line of why a job failed, ended or waits; empty where that says no more than its state does."""
    line = formatting.first_line(job.reason)
    if not line or (job.state is JobState.COMPLETED and not line.startswith(ENDED_BY_ITSELF)):
        return ""
    if job.state.live:
        return line
    told = line == job.state.value.lower() or experiment.reason.startswith(line)
    return "" if told or line.startswith(_QUIET) else line


def reasons(experiment: Experiment, jobs: Iterable[Job]) -> list[tuple[JobState, str, str]]:
    """Why jobs failed, ended or wait, where that says more than their state: failures first, equal ones once.

    Args:
        experiment: Theirs; that it ended is no reason of a job's own.
        jobs: Those to look at.

    Returns:
        State, which jobs ("1, 2 and 7 more"), and the first line of the reason.
    """
    grouped: dict[tuple[JobState, str], list[str]] = {}
    for job in jobs:
        line = why(experiment, job)
        if line:
            grouped.setdefault((job.state, line), []).append(job.id)
    ordered = sorted(grouped.items(), key=lambda item: item[0][0] is not JobState.FAILED)
    return [(state, _listed(ids), line) for (state, line), ids in ordered]


def _listed(ids: list[str]) -> str:
    named = ", ".join(ids[:_NAMED_JOBS])
    rest = len(ids) - _NAMED_JOBS
    return f"{named} and {rest} more" if rest > 0 else named
