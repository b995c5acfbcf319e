"""How many slots promising jobs get, and from which confidence on a job is promising (HyperDrive, section 3.2)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

_ROUNDING: Final = 1e-9


class SlotDivision(NamedTuple):
    """How the slots are divided.

    Attributes:
        promising: Whole slots for promising jobs.
        threshold: The confidence from which on a job is promising; None: nobody has any.
        effective: S_effective at the threshold, before it was made whole.
        curve: (p, S_desired, S_deserved) at each confidence that somebody has, falling p: what figures 4a and 4b show.
    """

    promising: int
    threshold: float | None
    effective: float
    curve: tuple[tuple[float, float, float], ...]


def divide(confidences: Iterable[float], slots: int, per_job: int = 1) -> SlotDivision:
    """Divides slots between promising and opportunistic jobs.

    With N(p) jobs of confidence p or more, S_desired(p) = N(p) x k and S_deserved(p) = S x p; S_effective is the smaller.
    Promising jobs get its maximum over the confidences that jobs have, and the threshold is where that lies; of equals the
    larger one.

    Args:
        confidences: Of all jobs that have one, each in [0, 1].
        slots: S, all slots there are, >= 0.
        per_job: k, slots that a promising job gets, >= 1.
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
