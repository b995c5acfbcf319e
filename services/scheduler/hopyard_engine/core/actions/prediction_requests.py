"""Prediction requests of a policy: their checks, and the question that is sent to the predictor."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from hopyard.policy.vocabulary import ENDLESS
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.stream import Stream

PREDICT = "predict"
"""The `AskOutside.kind` of a question to a predictor."""

MAX_POINTS: Final = 2000
"""Maximum number of points of a curve in a question. Of a longer curve, only every second, third, ... point is sent."""

T = TypeVar("T")


def obstacle(job: Job, parameters: Mapping[str, Any]) -> Reason | None:
    """Return why a prediction request for a job must be refused, or None if it can be answered.

    It is refused if the job has ended, a parameter is unknown or invalid, or the horizon is missing for a job without a maximum
    position.

    Args:
        job: The job.
        parameters: The policy's parameters: "target" (a metric value) and "horizon" (the last position to predict), both optional.
    """
    target, horizon = parameters.get("target"), parameters.get("horizon")
    if unknown := sorted(parameters.keys() - {"target", "horizon"}):
        return Reason.of(ReasonCode.PREDICTION_PARAMETERS_UNKNOWN, found=", ".join(unknown))
    if target is not None and (not _is_number(target) or not abs(target) <= sys.float_info.max):
        return Reason.of(ReasonCode.PREDICTION_TARGET_INVALID, found=f"{target!r:.80}")
    if horizon is not None and (type(horizon) is not int or not 1 <= horizon <= ENDLESS):
        return Reason.of(ReasonCode.PREDICTION_HORIZON_INVALID, found=f"{horizon!r:.80}")
    if horizon is None and job.max_position >= ENDLESS:
        return Reason(ReasonCode.PREDICTION_HORIZON_MISSING)
    if job.state.ended:
        return Reason.of(ReasonCode.NOTHING_TO_PREDICT, job=job.id, state=job.state.value)
    return None


def question(stream: Stream, job: Job, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the question to the predictor as plain data. It depends only on the stream's events, so a replay repeats it.

    Args:
        stream: The stream of the job.
        job: The job.
        parameters: The policy's parameters, which `obstacle` has accepted: "target" (default: the experiment's target) and "horizon"
            (default: the experiment's maximum position, or, if it has none, that of the job).
    """
    metric, terms = stream.settings.metric, job.terms
    horizon = terms.max_position if terms.max_position < ENDLESS else job.max_position
    points = [(point.position, point.metrics) for point in stream.curve(job)]
    known = thinned([(position, metrics[metric]) for position, metrics in points if metric in metrics])
    return {
        "job": job.id,
        "question": {
            "curve": {
                "positions": [position for position, _ in known],
                "values": [value for _, value in known],
                "hyperparameters": dict(job.hyperparameters or {}),
            },
            "horizon": parameters.get("horizon", horizon),
            "mode": terms.mode,
            "target": parameters.get("target", terms.target),
            "low": terms.low,
            "high": terms.high,
            "seed": _seed(terms.seed, job.hyperparameters or {}, known[-1][0] if known else 0),
        },
    }


def thinned(points: Sequence[T], most: int = MAX_POINTS) -> Sequence[T]:
    """Return every n-th point of a curve, for the smallest n that gives at most `most` (>= 1) points.

    The last point of the curve is always included. An empty curve gives an empty result.
    """
    step = -(-len(points) // most)
    return points if step <= 1 else points[(len(points) - 1) % step :: step]


def _seed(seed: int, hyperparameters: Mapping[str, Any], position: int) -> int:
    """Return the seed of a prediction. It depends on the experiment's seed, the configuration and the position, not on the job's id."""
    values = json.dumps(hyperparameters, sort_keys=True)
    digest = hashlib.sha256(f"{seed}/{values}/{position}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
