"""Checks of the input of a trainer (hyperparameters) and of its output (metrics, examples)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from numbers import Real
from types import MappingProxyType
from typing import Any, Protocol

from hopyard.trainer.errors import DriverUsageError, MetricsError, TrainerPhase

MAX_METRICS = 1000
MAX_NAME = 256
"""Limits of a report: the number of metrics, and the characters in a name. Larger reports would slow down the journal."""


class OneNumber(Protocol):
    """A tensor or array with one number, which `item` returns."""

    def item(self) -> Any:
        """Return the number as a Python object."""


MetricValue = float | OneNumber
"""The value of a metric that a script reports."""


def is_whole(value: object, *, least: int) -> bool:
    """Return whether `value` is an int (not a bool) and at least `least`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def frozen_hyperparameters(hyperparameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a read-only copy of a configuration, with the types that JSON would return, such as lists for tuples.

    Values therefore compare equal before and after they are written to a snapshot.

    Raises:
        DriverUsageError: A name is not a non-empty str, or a value is not a JSON value.
    """
    copy: dict[str, Any] = {}
    for name, value in hyperparameters.items():
        if not _is_name(name):
            raise DriverUsageError(f"hyperparameter name {name!r}; allowed: a non-empty str")
        try:
            copy[name] = json.loads(json.dumps(value))
        except (TypeError, ValueError) as error:
            raise DriverUsageError(
                f"hyperparameter {name!r} is {value!r} ({type(value).__name__}); allowed: what JSON can hold"
            ) from error
    return MappingProxyType(copy)


def changed_names(old: Mapping[str, Any], new: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the hyperparameters that were added, removed or given another value.

    1 and 1.0 are equal, and so are two NaN, but 1 and True are not.
    """

    def differs(name: str) -> bool:
        if name not in old or name not in new:
            return True
        before, after = old[name], new[name]
        if isinstance(before, bool) != isinstance(after, bool):
            return True
        # Compare both value and text: 1 equals 1.0 only by value, and NaN equals NaN only by text.
        return bool(before != after) and json.dumps(before, sort_keys=True) != json.dumps(after, sort_keys=True)

    return frozenset(name for name in {*old, *new} if differs(name))


def checked_metrics(metrics: object, *, trainer: str, phase: TrainerPhase, position: int) -> dict[str, float]:
    """Return the metrics that a trainer returned as plain floats.

    Any real number is accepted (an int, a NumPy scalar), including NaN and infinities, and a tensor or array with one
    real number. A bool, a str, and a tensor with several elements are rejected.

    Args:
        metrics: The value that the trainer returned.
        trainer: Name of the trainer class.
        phase: The method that returned it.
        position: The job's position.

    Raises:
        MetricsError: A metric is not allowed. The message names the trainer, the key and the value.
    """
    try:
        return plain_metrics(metrics, "it returned")
    except ValueError as error:
        raise MetricsError(trainer=trainer, phase=phase, position=position, reason=str(error)) from error.__cause__


def plain_metrics(metrics: object, found: str) -> dict[str, float]:
    """Return the metrics as plain floats. A tensor or array with one element counts as the number in it.

    Args:
        metrics: The value to check.
        found: Beginning of error messages, such as "it returned".

    Raises:
        ValueError: A metric is not allowed. The message names the key, the value, and the allowed values.
    """
    if not isinstance(metrics, Mapping):
        raise ValueError(f"{found} {_shown(metrics)}; allowed: a mapping of str to float, empty for nothing")
    if len(metrics) > MAX_METRICS:
        raise ValueError(f"{found} {len(metrics)} metrics; allowed: {MAX_METRICS}")
    checked: dict[str, float] = {}
    for key, value in metrics.items():
        if not _is_name(key) or len(key) > MAX_NAME or not key.isprintable():
            raise ValueError(
                f"{found} the metric name {_shown(key)[:80]}; allowed: a printable str of 1 to {MAX_NAME} characters"
            )
        number = _number(value)
        if number is None:
            hint = "; take the number out with .item()" if hasattr(value, "item") else ""
            raise ValueError(f"metric {key!r} is {_shown(value)}; allowed: a float{hint}")
        try:
            checked[key] = float(number)
        except OverflowError as error:
            raise ValueError(f"metric {key!r} is too large for a float: {_shown(value)}") from error
    return checked


def joined_metrics(
    trained: Mapping[str, float], evaluated: Mapping[str, float], *, trainer: str, position: int
) -> dict[str, float]:
    """Return the metrics of `train()` and `evaluate()` in one mapping.

    Args:
        trained: The metrics of `train()`.
        evaluated: The metrics of `evaluate()`.
        trainer: Name of the trainer class, for the error.
        position: The job's position, for the error.

    Raises:
        MetricsError: A name occurs in both.
    """
    twice = sorted(trained.keys() & evaluated.keys())
    if twice:
        raise MetricsError(
            trainer=trainer,
            phase=TrainerPhase.EVALUATE,
            position=position,
            reason=f"train() and evaluate() both report {', '.join(map(repr, twice))}; name one of them otherwise",
        )
    return {**trained, **evaluated}


def checked_examples(examples: object, *, trainer: str, position: int) -> int | None:
    """Return the number of examples that `evaluate()` set as `self.examples`, or None if it set none.

    Args:
        examples: The value of `self.examples`.
        trainer: Name of the trainer class, for the error.
        position: The job's position, for the error.

    Raises:
        MetricsError: The value is not a whole number of 0 or more.
    """
    if examples is None:
        return None
    if not isinstance(examples, int) or not is_whole(examples, least=0):
        raise MetricsError(
            trainer=trainer,
            phase=TrainerPhase.EVALUATE,
            position=position,
            reason=f"it set self.examples to {_shown(examples)}; allowed: a whole number, 0 or more, or None",
        )
    return examples


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _number(value: object) -> Real | None:
    """Return `value` if it is a real number, or the real number in it if it is a tensor or array of one element; else None."""
    if not isinstance(value, Real) and callable(item := getattr(value, "item", None)):
        try:
            value = item()
        except Exception:  # noqa: BLE001 - each library has another error for several elements
            return None
    return None if isinstance(value, bool) or not isinstance(value, Real) else value


def _shown(value: object) -> str:
    text = repr(value)
    return f"{text if len(text) <= 200 else text[:200] + '...'} ({type(value).__name__})"
