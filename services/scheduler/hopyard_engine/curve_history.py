"""The learning curves of an experiment's jobs as JSON: a predictor that predicts one job learns from the curves of the others.

The JSON text of a curve is cached until the curve changes.
"""

from __future__ import annotations

import heapq
import json
from typing import Final

from hopyard.policy.vocabulary import ExperimentId
from hopyard_engine.core.actions.prediction_requests import MAX_POINTS as MAX_OF_ONE
from hopyard_engine.core.actions.prediction_requests import thinned
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.stream import Stream

MAX_CURVES: Final = 200
MAX_POINTS: Final = 50_000
"""Maximum number of other curves in a question, and of their points in total. The longest curves are chosen, then the oldest."""


class Histories:
    """A cache of the curves of jobs of all experiments, as JSON text."""

    def __init__(self) -> None:
        self._written: dict[ExperimentId, dict[str, tuple[tuple[int, bool, object], str]]] = {}

    def others(self, stream: Stream, job: Job) -> str:
        """Return the curves of the other jobs of the experiment that `job` belongs to, as a JSON list in order of the jobs' creation.

        Each curve is an object with `positions`, `values` (of the experiment's metric), `hyperparameters` and `ended` (whether the job
        has ended). The list is limited to the jobs with the highest positions with results, at most `MAX_CURVES` jobs with `MAX_POINTS`
        points. Without other jobs with results it is empty (`[]`).
        """
        written = self._written.setdefault(job.experiment.id, {})
        return f"[{','.join(_text(stream, one, written) for one in others(stream, job))}]"

    def forget(self, experiment: ExperimentId) -> None:
        """Drop the cached curves of an experiment that has ended."""
        self._written.pop(experiment, None)


def others(stream: Stream, job: Job) -> list[Job]:
    """Select the other jobs of an experiment whose curves are sent to the predictor with a question about `job`.

    These are the jobs of the same experiment with the highest positions with results, at most `MAX_CURVES` with `MAX_POINTS` points in
    total. The first job with which the number of points would exceed the limit, and all after it, are left out. A curve contributes at
    most `MAX_OF_ONE` points. Jobs without results are left out. The result is in order of the jobs' creation.
    """
    candidates = (
        one for one in stream.jobs.values() if one.experiment is job.experiment and one is not job and one.high_water
    )
    furthest = heapq.nsmallest(MAX_CURVES, candidates, key=lambda one: (-one.high_water, one.ordinal))
    chosen, points = [], 0
    for one in furthest:
        points += min(len(one.curve.points) + len(one.prefix), MAX_OF_ONE)
        if points > MAX_POINTS:
            break
        chosen.append(one)
    return sorted(chosen, key=lambda one: one.ordinal)


def state_of(job: Job) -> tuple[int, bool, object]:
    """Return a value that changes when a job's curve changes or the job ends. Then the cached JSON text of the curve is outdated."""
    return len(job.curve.points), job.state.ended, job.origin


def _text(stream: Stream, job: Job, written: dict[str, tuple[tuple[int, bool, object], str]]) -> str:
    state = state_of(job)
    before = written.get(job.id)
    if before is not None and before[0] == state:
        return before[1]
    metric = stream.settings.metric
    points = [(point.position, point.metrics) for point in stream.curve(job)]
    known = thinned([(position, metrics[metric]) for position, metrics in points if metric in metrics])
    curve = {
        "positions": [position for position, _ in known],
        "values": [value for _, value in known],
        "hyperparameters": dict(job.hyperparameters or {}),
        "ended": job.state.ended,
    }
    text = json.dumps(curve, separators=(",", ":"))
    written[job.id] = (state, text)
    return text
