"""The results of an experiment that must not depend on damage.

Which of several jobs trains a stage that they share may depend on it, because a lost snapshot is trained again. The table has therefore
the whole curve of each job, with the reports of the jobs from which it was forked.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hopyard.client.curve_lineage import ancestor
from hopyard.client.types import Experiment, Job, Statistic

METRIC = "score"


def table(experiment: Experiment, jobs: Sequence[Job], statistics: Sequence[Statistic]) -> Mapping[str, Any]:
    """Return the state of an experiment, and the jobs with their curves.

    Args:
        experiment: The experiment. Its metric is `METRIC`, and larger values are better.
        jobs: Its jobs.
        statistics: All reports of its jobs.
    """
    code = experiment.reason_code
    curves = {job.id: list(_curve(job, {one.id: one for one in jobs}, statistics)) for job in jobs}
    return {
        "id": experiment.id,
        "name": experiment.name,
        "state": experiment.state.value,
        "reason_code": code.value if code is not None else "",
        "reason": experiment.reason,
        "best": [_exact(experiment.best_value), experiment.best_position],
        "jobs": [
            [
                *(job.id, _text(job.hyperparameters), job.state.value, job.position, _exact(job.last_value)),
                *_best(job, curves[job.id]),
            ]
            for job in jobs
        ],
        "reports": sorted((_report(name, one) for name, curve in curves.items() for one in curve), key=_text),
    }


def _curve(job: Job, jobs: Mapping[str, Job], statistics: Sequence[Statistic]) -> Iterator[Statistic]:
    """Yield the reports of a job, and those before its fork of the jobs from which it was forked."""
    passed: set[str] = set()
    upto = math.inf
    one: Job | None = job
    while one is not None:
        parent = ancestor(one, upto, passed)
        begin = one.fork_position if parent is not None else -1
        yield from (row for row in statistics if row.job == one.id and begin < row.report.position <= upto)
        passed.add(one.id)
        upto = min(upto, begin)
        one = jobs.get(parent) if parent is not None else None


def _best(job: Job, curve: Sequence[Statistic]) -> list[Any]:
    """Return the best value and its position: as recorded for a job that shares no results, else those of its curve."""
    if job.parent is None and not job.shared_position:
        return [_exact(job.best_value), job.best_position]
    found = [(one.report.metrics[METRIC], -one.report.position) for one in curve if METRIC in one.report.metrics]
    value, position = max(found, default=(None, 0))
    return [_exact(value), -position]


def _report(job: str, one: Statistic) -> list[Any]:
    metrics = sorted((name, _exact(value)) for name, value in one.report.metrics.items())
    return [job, one.report.position, metrics, one.report.finished]


def _exact(value: float | None) -> str:
    return "none" if value is None else value.hex()


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)
