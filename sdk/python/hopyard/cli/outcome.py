"""Evaluates the result of an experiment: whether its metric was reported, why jobs ended, and the command's final error."""

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
"""Prefix of the reason of an experiment whose only unfinished jobs are paused by a person."""

ENDED_BY_ITSELF: Final = "its program ended by itself"
"""Prefix of the reason of a COMPLETED job whose program ended before the experiment's last position."""

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
"""Prefixes of reasons that add nothing to the job's state and position."""


ASKED: Final = "waits for the policy"
"""Reason of an experiment while its policy processes an up-call."""

NOTHING_LEFT: Final = "the policy has nothing left to do"
"""Reason of an experiment that ended while some of its jobs were waiting."""

BACK_AT_START: Final = "back at position 0, as no snapshot of it was saved"
"""Prefix of the reason of a job that lost its slot without a snapshot and will start from the beginning."""

STARTS_OVER: Final = (
    "its program saves no checkpoint: every pause and every promotion trains a job from its beginning again; "
    "docs/programs.md shows how a program saves"
)


def nobody_trained(experiment: Experiment, jobs: Sequence[Job]) -> str:
    """Return a remark on a COMPLETED search in which no job reached `max_iterations`; empty if one did, or if there is no limit."""
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
    """Add the metrics of a report to `seen`, which maps each name to whether any of its values was finite."""
    for name, value in metrics.items():
        seen[name] = seen.get(name, False) or math.isfinite(value)


def metrics_seen(statistics: Iterable[Statistic]) -> dict[str, bool]:
    """Return the names of all reported metrics, each with whether any of its values was finite."""
    seen: dict[str, bool] = {}
    for one in statistics:
        note_metrics(seen, one.report.metrics)
    return seen


def metric_trouble(name: str, seen: Mapping[str, bool]) -> str:
    """Return the problem of the metric `name` in the result of `metrics_seen`; empty if it is fine, or without any report."""
    if not seen or seen.get(name):
        return ""
    if name in seen:
        return f"{name} is reported, but never finite"
    near = difflib.get_close_matches(name, list(seen), n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"{name} is not reported; reported are {', '.join(sorted(seen))}{hint}"


async def metric_error(client: AsyncClient, experiment: Experiment, jobs: Sequence[Job] | None = None) -> str:
    """Return the error of an experiment whose metric was never reported; empty if it was reported, or if no job has trained.

    Args:
        client: Queries the reports, if there is no best value.
        experiment: The experiment in its current state.
        jobs: The jobs of the experiment; None: they are queried.
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
    """Return the error with which a command for an ended experiment must fail; empty if the experiment succeeded."""
    there = jobs if jobs is not None else await client.jobs(experiment)
    if there and all(job.state is JobState.FAILED for job in there):
        return f"every job failed, the first with: {formatting.first_line(there[0].reason) or 'no message'}"
    if experiment.state is ExperimentState.FAILED:
        return f"{experiment.name} ({experiment.id}) failed: {formatting.first_line(experiment.reason) or 'no message'}"
    return await metric_error(client, experiment, there)


def why(experiment: Experiment, job: Job) -> str:
    """Return the first line of the reason why a job failed, ended or waits; empty if it adds nothing to the state."""
    line = formatting.first_line(job.reason)
    if not line or (job.state is JobState.COMPLETED and not line.startswith(ENDED_BY_ITSELF)):
        return ""
    if job.state.live:
        return line
    told = line == job.state.value.lower() or experiment.reason.startswith(line)
    return "" if told or line.startswith(_QUIET) else line


def reasons(experiment: Experiment, jobs: Iterable[Job]) -> list[tuple[JobState, str, str]]:
    """Return the reasons why jobs failed, ended or wait, grouped by state and reason, with failures first. See `why`.

    Args:
        experiment: The experiment of the jobs. Its own end is not repeated as a reason of each job.
        jobs: The jobs to evaluate.

    Returns:
        State, jobs ("1, 2 and 7 more"), and first line of the reason.
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
