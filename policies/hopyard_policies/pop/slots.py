"""The number of slots for promising jobs and the confidence threshold (HyperDrive, section 3.2)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

_ROUNDING: Final = 1e-9


class SlotDivision(NamedTuple):
    """The division of slots between promising and opportunistic jobs.

    Attributes:
        promising: Number of slots for promising jobs.
        threshold: Least confidence of a promising job; None: no job has a positive confidence.
        effective: S_effective (see `divide`) at the threshold, before rounding.
        curve: (p, S_desired, S_deserved) for each distinct confidence p, descending (see `divide`); the data of HyperDrive's
            figures 4a and 4b.
    """

    promising: int
    threshold: float | None
    effective: float
    curve: tuple[tuple[float, float, float], ...]


def divide(confidences: Iterable[float], slots: int, per_job: int = 1) -> SlotDivision:
    """Divide slots between promising and opportunistic jobs.

    With N(p) jobs of confidence p or more, S_desired(p) = N(p) * k and S_deserved(p) = S * p; S_effective is the
    smaller of the two. Promising jobs get the maximum of S_effective over the confidences of the jobs, rounded down. The threshold is
    the confidence at that maximum, the largest one if there are several.

    Args:
        confidences: Known confidences of jobs, each in [0, 1].
        slots: S, the total number of slots, >= 0.
        per_job: k, the number of slots of a promising job, >= 1.
    """
    falling = sorted(confidences, reverse=True)
    curve = []
    threshold, most = None, 0.0
    for index, p in enumerate(falling):
        if index + 1 < len(falling) and falling[index + 1] == p:
            continue
        desired, deserved = float((index + 1) * per_job), slots * p
        curve.append((p, desired, deserved))
        effective = min(desired, deserved)
        if effective > most * (1 + _ROUNDING):
            threshold, most = p, effective
    return SlotDivision(math.floor(most * (1 + _ROUNDING)), threshold, most, tuple(curve))
