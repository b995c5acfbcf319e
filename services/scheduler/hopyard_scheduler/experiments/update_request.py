"""Validation of a client's changes to the metric, target, weight, slots and concurrency of an experiment."""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass
from typing import Final

from hopyard.errors import Conflict, InvalidInput
from hopyard.policy.vocabulary import StreamId
from hopyard.spec import ExperimentSpec
from hopyard_engine.core.events import Updated
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.types import Settings

CLEARABLE: Final = ("target", "slots", "concurrency")
"""Terms that can be removed."""


@dataclass(frozen=True, slots=True)
class UpdateRequest:
    """A client's changes to an experiment. A field that is None stays unchanged.

    Attributes:
        target: The new target: a report at least as good ends the experiment.
        weight: The new weight of its share of the cluster; greater than 0.
        slots: The new maximum number of slots, 1 or more.
        concurrency: The new maximum number of jobs that train at the same time, 1 or more.
        clear: Names of fields to remove, from `CLEARABLE`.
        metric: The new name of the metric; empty: unchanged.
        request: Idempotency key; empty: each call is a new change.
    """

    target: float | None = None
    weight: float | None = None
    slots: int | None = None
    concurrency: int | None = None
    clear: tuple[str, ...] = ()
    metric: str = ""
    request: str = ""


def update_of(at: float, stream: StreamId, experiment: Experiment, terms: UpdateRequest) -> Updated:
    """Return the event that applies a client's changes to an experiment.

    Args:
        at: The time of the event, in seconds since the Unix epoch.
        stream: The stream of the experiment.
        experiment: The experiment.
        terms: The changes.

    Raises:
        InvalidInput: A value is invalid, or nothing is changed.
    """
    _check(terms, experiment.settings)
    return Updated(
        at,
        stream,
        terms.request or f"update-{uuid.uuid4()}",
        target=terms.target,
        weight=terms.weight,
        slots=terms.slots,
        experiment=experiment.id,
        concurrency=terms.concurrency,
        cleared=terms.clear,
        metric=terms.metric,
    )


def _check(terms: UpdateRequest, present: Settings) -> None:
    given = {name: getattr(terms, name) for name in ("target", "weight", "slots", "concurrency")}
    values = {name: value for name, value in given.items() if value is not None}
    if not (values or terms.clear or terms.metric):
        raise InvalidInput(f"change at least one of metric, {', '.join(given)}")
    for name in ("target", "weight"):
        if not math.isfinite(values.get(name, 0.0)):
            raise InvalidInput(f"{name} must be a finite number, found {values[name]}")
    if values.get("weight", 1.0) <= 0:
        raise InvalidInput(f"weight must be above 0, found {terms.weight}")
    for name in ("slots", "concurrency"):
        if values.get(name, 1) < 1:
            raise InvalidInput(f"{name} must be at least 1, found {values[name]}")
    for name in terms.clear:
        if name not in CLEARABLE or name in values:
            raise InvalidInput(f"clear: found {name!r}, allowed are {', '.join(CLEARABLE)}, and none that is set")
    target, threshold, mode = terms.target, present.kill_threshold, present.mode
    if target is not None and threshold is not None and (target <= threshold if mode == "max" else target >= threshold):
        side = "above" if mode == "max" else "below"
        raise InvalidInput(f"target must be {side} the kill_threshold {threshold:g} (mode {mode}), found {target:g}")


def need_pattern(spec: ExperimentSpec, metric: str, *, running: bool) -> None:
    """Raise an error unless the program of an experiment can report its new metric. Only log programs are checked.

    Args:
        spec: The specification of the experiment.
        metric: The new metric.
        running: Whether jobs of the experiment train now. The pattern that ends an iteration cannot change during a run.

    Raises:
        InvalidInput: The log program has no pattern for the metric.
        Conflict: Jobs of a log program train.
    """
    if spec.log is None:
        return
    if metric not in spec.log.metrics:
        raise InvalidInput(
            f"metric: found {metric!r}, allowed are the names in log.metrics: {', '.join(spec.log.metrics)}"
        )
    if running:
        raise Conflict("jobs train, and a match of the metric ends their iterations: pause the experiment first")
