"""The learning curves of other jobs as JSON, for predictors that read them. The text of each curve is cached until the curve grows."""

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
    """A cache of the curves of all experiments."""

    def __init__(self) -> None:
        self._written: dict[ExperimentId, dict[str, tuple[tuple[int, bool, object], str]]] = {}

    def others(self, stream: Stream, job: Job) -> str:
        """Returns a JSON list of the curves of the other jobs of a job's experiment, in order of creation."""
        written = self._written.setdefault(job.experiment.id, {})
        return f"[{','.join(_text(stream, one, written) for one in others(stream, job))}]"

    def forget(self, experiment: ExperimentId) -> None:
        """Drops the cached curves of an experiment that has ended."""
        self._written.pop(experiment, None)


def others(stream: Stream, job: Job) -> list[Job]:
    """Returns the other jobs of a job's experiment whose curves are sent with a question, in order of creation."""
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
    """Returns a value that changes when a job's curve grows or ends."""
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
