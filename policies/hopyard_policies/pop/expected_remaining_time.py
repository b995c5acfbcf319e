"""How likely a job reaches the target in time, and how soon (HyperDrive, section 3.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

_ROUNDING: Final = 1e-9


class Outlook(NamedTuple):
    """What is expected of a job.

    Attributes:
        confidence: p, the chance that it reaches the target before the experiment's time is over, in [0, 1].
        remaining: ERT, the expected seconds until then, >= 0; never more than there are.
    """

    confidence: float
    remaining: float


def epochs_left(seconds: float, epoch: float) -> int:
    """M, how many whole epochs of so many seconds (> 0) fit into a time (section 3.1.1).

    A quotient that is a whole number but for rounding is that number: (0.3 - 0.1) / 0.1 is 2.
    """
    quotient = seconds / epoch
    nearest = round(quotient)
    near = abs(quotient - nearest) <= _ROUNDING * max(1.0, abs(quotient))
    return max(nearest if near else math.floor(quotient), 0)


def epochs_within(epochs: int, left: float, epoch: float) -> int:
    """How many of so many future epochs count: those that the experiment's time has room for, if it ends."""
    return min(epochs, epochs_left(max(left, 0.0), epoch)) if math.isfinite(left) and epoch > 0 else epochs


def outlook_of(reaches: Sequence[float], left: float, epoch: float) -> Outlook:
    """Confidence and expected remaining time from the chances at each future epoch.

    The chance p_m that the m-th epoch is the first at the target is what the running maximum of P(y(m) >= target) gains there: a
    job that has reached the target has reached it, whatever comes later. The sums end at M, with the experiment's time. ERT is
    equations 2 and 3, the masses as they are, and at most the time that is left. It says nothing alone: that of a job without any
    chance is 0.

    Args:
        reaches: P(y(m) >= target) for m = 1, 2, ...
        left: Seconds until the experiment's time is over (T_max - T_pass); infinite: it has no end.
        epoch: Mean seconds of one of the job's epochs, >= 0.
    """
    reached = expected = 0.0
    for epochs, chance in enumerate(reaches[: epochs_within(len(reaches), left, epoch)], 1):
        if chance > reached:
            expected += epochs * (chance - reached)
            reached = chance
    return Outlook(min(reached, 1.0), min(expected * epoch, max(left, 0.0)))
