"""The task that a client under test trains: so small that any language can do it, and that every result is known exactly."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

METRIC: Final = "value"
"""What the task reports."""


def values(hyperparameters: Mapping[str, Any], x: float | None = None) -> Iterator[float]:
    """What is reported at the positions that follow, as docs/protocol.md says of the task.

    Args:
        hyperparameters: Of the run.
        x: Where it goes on from; None: from the beginning.
    """
    if x is None:
        x = float(hyperparameters.get("start", {}).get("x", 0.0))
    step = float(hyperparameters["lr"]) * (2 if hyperparameters.get("twice") else 1)
    step = -step if hyperparameters.get("sign") == "minus" else step
    while True:
        x += step
        yield x


def value(hyperparameters: Mapping[str, Any], position: int, *, base: int = 0, x: float | None = None) -> float:
    """What is reported at a position, by a run that began at `base`, with `x`."""
    if hyperparameters.get("nan_at") == position:
        return math.nan
    series = values(hyperparameters, x)
    for _ in range(position - base - 1):
        next(series)
    return next(series)
