"""Slots that promising jobs want and deserve, by confidence, at two moments of a search (HyperDrive, figures 4a and 4b)."""

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
    """How slots would be divided at one time.

    Attributes:
        time: Seconds since the search began.
        slots: S, all slots.
        desired: (p, slots that jobs with p or more want), p falling, at each confidence that a job has.
        threshold: The confidence from which on a job is promising; None: nobody has any.
        effective: The smaller of desired and deserved slots (S x p) there.
        promising: Whole slots for promising jobs.
    """

    time: float
    slots: int
    desired: tuple[tuple[float, float], ...]
    threshold: float | None
    effective: float
    promising: int


@dataclass(frozen=True, slots=True)
class Slots:
    """An early moment of a search, and a late one; one alone when there was no other."""

    moments: tuple[SlotMoment, ...]


def gather(searches: Sequence[Search]) -> Slots:
    """Of one search: the moments after one fifth and after four fifths of those at which jobs had confidences.

    Raises:
        InvalidInput: There are several searches, or it does not tell what its policy thought.
        NotFound: Its policy had no idea of its jobs.
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
    """What follows from the chances of all jobs, in falling order, for so many slots."""
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
