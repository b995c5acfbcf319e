"""Data of the plot `slots`: desired and deserved slots of promising jobs, at two moments of a search (HyperDrive, figures 4a and 4b).

A job's confidence p is the policy's estimate of the probability that the job reaches the target. For each p: *desired* slots are those
that all jobs with a confidence of p or more would use; *deserved* slots are S x p, where S is the number of all slots.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hopyard.errors import NotFound
from hopyard.plots.data.groups import need, one
from hopyard.plots.model import Search

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class SlotMoment:
    """How the policy would divide the slots at one moment of a search.

    A confidence p is the policy's estimate of the probability that a job reaches the target.

    Attributes:
        time: Seconds since the search began.
        slots: S, the number of all slots.
        desired: Pairs (p, number of slots that all jobs with a confidence of p or more would use) for each confidence p that a job has,
            in descending order of p.
        threshold: The confidence from which on a job is promising: the p that maximizes `effective`. None: no job has a confidence
            above 0.
        effective: The smaller one of the desired slots and the deserved slots (S x p) at the threshold; 0 without a threshold.
        promising: Number of slots for promising jobs: `effective`, rounded down.
    """

    time: float
    slots: int
    desired: tuple[tuple[float, float], ...]
    threshold: float | None
    effective: float
    promising: int


@dataclass(frozen=True, slots=True)
class Slots:
    """Data of the plot `slots`: how many slots promising jobs desire and deserve (see `SlotMoment`), at two moments of a search.

    Attributes:
        moments: An early and a late moment: those after a fifth and after four fifths of the recorded moments. One moment if both
            are the same.
    """

    moments: tuple[SlotMoment, ...]


def gather(searches: Sequence[Search]) -> Slots:
    """Return the data of the plot `slots` for one search: desired and deserved slots (see this module) at two moments.

    The search records confidences at n moments (`Search.confidences`). The plot shows the moments with the indices n / 5 and
    4 n / 5, rounded down; if both are the same, it shows one.

    Args:
        searches: Exactly one search.

    Raises:
        InvalidInput: There are several searches, or the source of the search provides no confidences (`Search.confidences` is None).
        NotFound: The source provides them, but the policy of the search has estimated none.
    """
    search = one(searches, "slots")
    known = need(search, "confidences", "slots", '"confidences"')
    if not known:
        raise NotFound(f"{search.where}: its policy says of no job how likely it reaches the target; pop does")
    places = dict.fromkeys((len(known) // 5, 4 * len(known) // 5))
    moments = []
    for place in places:
        time, slots, chances = known[place]
        moments.append(moment(time, slots, chances, search.slots_per_job))
    return Slots(tuple(moments))


def moment(time: float, slots: int, chances: Sequence[float], per_job: int = 1) -> SlotMoment:
    """Return how slots would be divided at one moment between promising jobs (likely to reach the target) and all others.

    Args:
        time: Seconds since the search began.
        slots: S, the number of all slots.
        chances: The confidences of all jobs (estimated probabilities of reaching the target), in descending order.
        per_job: k, the number of slots that one promising job would use; n jobs desire k x n slots.
    """
    desired = [
        (p, float((index + 1) * per_job))
        for index, p in enumerate(chances)
        if index + 1 == len(chances) or chances[index + 1] != p
    ]
    threshold, most = None, 0.0
    for p, wanted in desired:
        effective = min(wanted, slots * p)
        if effective > most * (1 + _ROUNDING):
            threshold, most = p, effective
    return SlotMoment(time, slots, tuple(desired), threshold, most, math.floor(most * (1 + _ROUNDING)))
