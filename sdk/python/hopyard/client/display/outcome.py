"""Evaluates the result of an experiment: whether its metric was reported, why jobs ended, and the error with which a command fails."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from hopyard._common import formatting
from hopyard.client.display.job_looks import LOOKS, JobLook, look_of
from hopyard.client.display.short_reason import grouped_failures, short_reason
from hopyard.client.types import Experiment, ExperimentState, Job, JobState, Statistic
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode

if TYPE_CHECKING:
    from hopyard.client.queries import ClientQueries

_NAMED_JOBS: Final = 5

_QUIET: Final = frozenset(
    [
        ReasonCode.UNTIL_REACHED,
        ReasonCode.UNTIL_REACHED_SAVING,
        ReasonCode.SUSPENDED,
        ReasonCode.PREEMPTED,
        ReasonCode.PREEMPTED_LEAVING,
        ReasonCode.CONFIGURED,
        ReasonCode.PLACED,
        ReasonCode.TRAINED_TO_END,
        ReasonCode.TRAINED_TO_EVALUATE,
        ReasonCode.TRAINING,
        ReasonCode.EVALUATING,
        ReasonCode.PROFILING,
        ReasonCode.PROFILE_LOST,
        ReasonCode.PROFILE_FAILED,
    ]
)
"""Codes of reasons that are not shown, because they add nothing to the state and the position of a job."""

STARTS_OVER: Final = (
    "its program saves no checkpoint: every pause and every promotion trains a job from its beginning again; "
    "docs/programs.md shows how a program saves"
)


def incomplete_search_note(experiment: Experiment, jobs: Sequence[Job]) -> str:
    """Return a remark if a search completed before any job reached `stop.max_iterations`.

    The remark is empty in all other cases, such as if the experiment has no `stop.max_iterations`.

    Args:
        experiment: The ended experiment.
        jobs: Its jobs.
    """
    limit = experiment.spec.get("stop", {}).get("max_iterations")
    infinite = experiment.spec.get("policy", {}).get("infinite", False)
    if experiment.reason_code is not ReasonCode.NOTHING_LEFT or not limit or infinite:
        return ""
    if (
        experiment.state is not ExperimentState.COMPLETED
        or not jobs
        or any(job.state is JobState.COMPLETED for job in jobs)
    ):
        return ""
    furthest = max(max(job.position, job.best_position) for job in jobs)
    return (
        f"no job was trained to {limit}: the furthest reached {furthest}, and too few jobs arrived there for a promotion; "
        f"more jobs cause promotions, also of waiting jobs: hopyard extend {experiment.id} --jobs N; "
        f"hopyard rungs {experiment.id} shows how many stand where"
    )


def planned_jobs(experiment: Experiment, existing: int) -> int:
    """Return the number of jobs that an experiment will have: `stop.jobs`, but at least the number of jobs that exist (`existing`).

    Without `stop.jobs`, or if the experiment has ended, this is the number of jobs that exist.
    """
    wanted = (experiment.spec.get("stop") or {}).get("jobs")
    return existing if experiment.state.ended or not isinstance(wanted, int) else max(wanted, existing)


def note_metrics(seen: dict[str, bool], metrics: Mapping[str, float]) -> None:
    """Add the metrics of a report to `seen`, which maps each name to whether any reported value was finite."""
    for name, value in metrics.items():
        seen[name] = seen.get(name, False) or math.isfinite(value)


def metrics_seen(statistics: Iterable[Statistic]) -> dict[str, bool]:
    """Return the names of all reported metrics, each mapped to whether any reported value was finite."""
    seen: dict[str, bool] = {}
    for one in statistics:
        note_metrics(seen, one.report.metrics)
    return seen


def metric_trouble(name: str, seen: Mapping[str, bool]) -> str:
    """Return why the metric `name` cannot be optimized: it is not reported, or never finite. Empty: no problem, or no reports yet.

    `seen` is the result of `metrics_seen`.
    """
    if not seen or seen.get(name):
        return ""
    if name in seen:
        return f"{name} is reported, but never finite"
    near = difflib.get_close_matches(name, list(seen), n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"{name} is not reported; reported are {', '.join(sorted(seen))}{hint}"


async def metric_error(client: ClientQueries, experiment: Experiment, jobs: Sequence[Job] | None = None) -> str:
    """Return an error message if no report of an experiment has a finite value of its metric.

    Empty: a report has one; or there are no reports and no job is COMPLETED.

    Args:
        client: Queries the reports, if the experiment has no best value.
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


async def ended_error(client: ClientQueries, experiment: Experiment, jobs: Sequence[Job] | None = None) -> str:
    """Return the error message with which a command for an ended experiment must fail. Empty: the experiment succeeded.

    A command must fail if all jobs failed, the experiment is FAILED, or jobs trained but no report
    has a finite value of the experiment's metric.

    Args:
        client: Queries jobs and reports.
        experiment: The ended experiment.
        jobs: The jobs of the experiment; None: they are queried.
    """
    there = jobs if jobs is not None else await client.jobs(experiment)
    if there and all(job.state is JobState.FAILED for job in there):
        return f"every job failed, the first with: {formatting.first_line(there[0].reason) or 'no message'}"
    if experiment.state is ExperimentState.FAILED:
        return f"{experiment.name} ({experiment.id}) failed: {formatting.first_line(experiment.reason) or 'no message'}"
    return await metric_error(client, experiment, there)


def why(experiment: Experiment, job: Job) -> str:
    """Return the short reason why a job failed, ended or waits. Empty if it adds nothing to the job's state."""
    line, code = short_reason(job), job.reason_code
    if not line or (job.state is JobState.COMPLETED and code is not ReasonCode.PROGRAM_ENDED_EARLY):
        return ""
    if job.state.live:
        return line
    repeated = code is not None and code is experiment.reason_code
    return "" if repeated or code in _QUIET else line


def lost_progress(job: Job) -> bool:
    """Return whether a job lost its progress when it left its slot, so that its next run starts from the beginning.

    This follows from the reason why its last run ended.
    """
    # The reason of a job that waits for a slot contains that reason as its argument `last`.
    code, args, last = job.reason_code, job.reason_args, job.reason_args.get("last")
    if isinstance(last, Reason):
        code, args = last.code, last.args
    return code is ReasonCode.BACK_AT_POSITION and args["position"] == 0


def is_asked(experiment: Experiment) -> bool:
    """Return whether an experiment waits for an answer of its policy, but for less than two seconds so far.

    Commands do not show such a short wait. They recognize it by the arguments of the experiment's reason, which contain the duration of
    a longer wait only.
    """
    return experiment.reason_code is ReasonCode.WAITS_FOR_POLICY and not experiment.reason_args


def reasons(experiment: Experiment, jobs: Iterable[Job]) -> list[tuple[JobLook, str, str]]:
    """Return the reasons why jobs failed, ended or wait, grouped by look and reason, with failures first. See `why`.

    Args:
        experiment: The experiment of the jobs. A job's reason is omitted if it is also the reason of the experiment's end.
        jobs: The jobs to evaluate.

    Returns:
        For each group the look, the ids of the jobs as text ("1, 2 and 7 more"), and the short reason. Failures that differ only in
        numbers are one group, with the reason of its first job.
    """
    there = list(jobs)
    first = {name: line for line, names in grouped_failures(there) for name in names}
    grouped: dict[tuple[JobLook, str], list[str]] = {}
    for job in there:
        line = why(experiment, job)
        line = line and first.get(job.id, line)
        if line:
            grouped.setdefault((look_of(job.state, job.reason_code), line), []).append(job.id)
    ordered = sorted(grouped.items(), key=lambda item: item[0][0] is not LOOKS[JobState.FAILED])
    return [(look, _listed(ids), line) for (look, line), ids in ordered]


def _listed(ids: list[str]) -> str:
    named = ", ".join(ids[:_NAMED_JOBS])
    rest = len(ids) - _NAMED_JOBS
    return f"{named} and {rest} more" if rest > 0 else named
