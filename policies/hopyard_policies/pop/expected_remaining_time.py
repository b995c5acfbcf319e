"""Confidence and expected remaining time of a job (HyperDrive, section 3.1). An epoch is the training up to the next report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

_ROUNDING: Final = 1e-9


class Outlook(NamedTuple):
    """The predicted prospects of a job.

    Attributes:
        confidence: p, the probability that the job reaches the target before the experiment's time limit, in [0, 1].
        remaining: ERT, the expected seconds until the job reaches the target; from 0 to the time left.
    """

    confidence: float
    remaining: float


def epochs_left(seconds: float, epoch: float) -> int:
    """Return M, the number of whole epochs of `epoch` seconds (> 0) that fit into `seconds` (section 3.1.1); at least 0.

    A quotient within rounding error of an integer is that integer: (0.3 - 0.1) / 0.1 is 2.
    """
    quotient = seconds / epoch
    nearest = round(quotient)
    near = abs(quotient - nearest) <= _ROUNDING * max(1.0, abs(quotient))
    return max(nearest if near else math.floor(quotient), 0)


def epochs_within(epochs: int, left: float, epoch: float) -> int:
    """Return how many of `epochs` future epochs fit into the time left; all of them without a time limit.

    Args:
        epochs: The number of future epochs.
        left: Seconds until the time limit; infinite: no limit.
        epoch: Mean seconds of an epoch; 0: unknown, so all epochs fit.
    """
    return min(epochs, epochs_left(max(left, 0.0), epoch)) if math.isfinite(left) and epoch > 0 else epochs


def outlook_of(reaches: Sequence[float], left: float, epoch: float) -> Outlook:
    """Return confidence and expected remaining time, given the probabilities at future epochs.

    The probability p_m that epoch m is the first to reach the target is the increase of the running maximum of P(y(m)
    >= target) at m: a job that has reached the target is successful, whatever it reports later. The sums end at M, the
    time limit of the experiment. ERT follows equations 2 and 3 without normalization, limited to the time left. It is
    meaningful only together with the confidence: for a job without any chance it is 0.

    Args:
        reaches: P(y(m) >= target) for m = 1, 2, ...
        left: Seconds until the experiment's time limit (T_max - T_pass); infinite: no limit.
        epoch: Mean seconds of an epoch of the job; 0: unknown, so no epoch is excluded by the time limit and ERT is 0.
    """
    reached = expected = 0.0
    for epochs, chance in enumerate(reaches[: epochs_within(len(reaches), left, epoch)], 1):
        if chance > reached:
            expected += epochs * (chance - reached)
            reached = chance
    return Outlook(min(reached, 1.0), min(expected * epoch, max(left, 0.0)))
