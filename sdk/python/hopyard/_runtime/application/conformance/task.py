"""The training task of the conformance test: simple enough for any language, with exactly known results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

METRIC: Final = "value"
"""Name of the metric that the task reports."""


def values(hyperparameters: Mapping[str, Any], x: float | None = None) -> Iterator[float]:
    """Yield, without end, the metric values of the task at successive positions, as docs/protocol.md defines the task.

    The hyperparameter `nan_at` has no effect here; `value` handles it.

    Args:
        hyperparameters: Hyperparameters of the run.
        x: Value in the snapshot to resume from; None: from scratch. The first yielded value is that of the next position.
    """
    if x is None:
        x = float(hyperparameters.get("start", {}).get("x", 0.0))
    step = float(hyperparameters["lr"]) * (2 if hyperparameters.get("twice") else 1)
    step = -step if hyperparameters.get("sign") == "minus" else step
    while True:
        x += step
        yield x


def value(hyperparameters: Mapping[str, Any], position: int, *, base: int = 0, x: float | None = None) -> float:
    """Return the metric value that the task must have at a position.

    Args:
        hyperparameters: Hyperparameters of the run.
        position: The position, larger than `base`.
        base: Position at which the run began.
        x: Value in the snapshot at `base`; None: the run began from scratch.
    """
    if hyperparameters.get("nan_at") == position:
        return math.nan
    series = values(hyperparameters, x)
    for _ in range(position - base - 1):
        next(series)
    return next(series)
