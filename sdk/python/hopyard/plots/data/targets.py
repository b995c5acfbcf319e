"""Time to the target: over policies (HyperDrive, figures 7 and 9), slots (12b) and orders of configurations (12c).

A search that never reached its target counts as one that takes for ever. It is shown as such, and is part of each quantile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hopyard.errors import InvalidInput
from hopyard.plots.data.groups import grouped, labels, need, panels
from hopyard.plots.model import Search

QUARTILES = (0.25, 0.5, 0.75)


@dataclass(frozen=True, slots=True)
class TargetTimes:
    """Times to the target of one policy's searches.

    Attributes:
        label: The policy.
        times: Seconds of those that reached it, in rising order.
        never: How many did not.
        lower: Their lower quartile; infinite where that never reached it.
        median: The same of their median.
        upper: The same of their upper quartile.
        spread: From the fastest to the slowest; infinite if one never reached it.
    """

    label: str
    times: tuple[float, ...]
    never: int
    lower: float
    median: float
    upper: float
    spread: float

    @property
    def count(self) -> int:
        """How many searches."""
        return len(self.times) + self.never


@dataclass(frozen=True, slots=True)
class Panel:
    """Policies that may be compared: they had the same to do. `title` is empty where there is only one panel."""

    title: str
    policies: tuple[TargetTimes, ...]


@dataclass(frozen=True, slots=True)
class Targets:
    """What reaching `target` took, in comparable panels; `longest` is the longest time that any search took to it, or took in vain."""

    metric: str
    target: float
    longest: float
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Boxes(Targets):
    """Over policies."""


@dataclass(frozen=True, slots=True)
class TargetOrders(Targets):
    """Over orders of configurations."""


@dataclass(frozen=True, slots=True)
class TargetScaling:
    """One policy's times to the target over numbers of slots, `slots` rising, one entry of `times` for each."""

    label: str
    slots: tuple[int, ...]
    times: tuple[TargetTimes, ...]


@dataclass(frozen=True, slots=True)
class CapacityPanel:
    """Policies that had the same to do."""

    title: str
    policies: tuple[TargetScaling, ...]


@dataclass(frozen=True, slots=True)
class Capacity:
    """What reaching `target` took, over numbers of slots."""

    metric: str
    target: float
    longest: float
    panels: tuple[CapacityPanel, ...]


def boxes(searches: Sequence[Search]) -> Boxes:
    """Times to the target over policies.

    Raises:
        InvalidInput: A search has no target, or they have several.
    """
    metric, target, longest = _target(searches, "boxes")
    return Boxes(metric, target, longest, _over_policies(searches))


def orders(searches: Sequence[Search]) -> TargetOrders:
    """Times to the target over orders of configurations, for each policy.

    Raises:
        InvalidInput: A search has no target or no order, they have several targets, or no policy has seen two orders.
    """
    metric, target, longest = _target(searches, "orders")
    seeds = {need(search, "order_seed", "orders", '"order_seed"') for search in searches}
    if len(seeds) < 2:
        raise InvalidInput(
            f"{searches[0].where}: --kind orders compares orders of configurations, and all searches here have order {seeds.pop()}; "
            "simulate with several --order-seed, or use --kind boxes"
        )
    return TargetOrders(metric, target, longest, _over_policies(searches))


def capacity(searches: Sequence[Search]) -> Capacity:
    """Times to the target over numbers of slots, for each policy.

    Raises:
        InvalidInput: A search has no target or no number of slots, they have several targets, or one number of slots.
    """
    metric, target, longest = _target(searches, "capacity")
    slots = {need(search, "slots", "capacity", '"slots"') for search in searches}
    if len(slots) < 2:
        raise InvalidInput(
            f"{searches[0].where}: --kind capacity compares numbers of slots, and all searches here have {slots.pop()}; "
            "simulate with several --slots, or use --kind boxes"
        )
    found = []
    for title, group in panels(searches, by_slots=False):
        policies = []
        for label, same in grouped(labels(group), group).items():
            by_slots = dict(sorted(grouped([search.slots or 0 for search in same], same).items()))
            times = tuple(times_of(label, some) for some in by_slots.values())
            policies.append(TargetScaling(label, tuple(by_slots), times))
        found.append(CapacityPanel(title, tuple(policies)))
    return Capacity(metric, target, longest, tuple(found))


def times_of(label: str, searches: Sequence[Search]) -> TargetTimes:
    """What reaching the target took a policy's searches."""
    reached = sorted(search.time_to_target for search in searches if search.time_to_target is not None)
    never = len(searches) - len(reached)
    lower, median, upper = (quantile(reached, never, q) for q in QUARTILES)
    spread = math.inf if never else reached[-1] - reached[0]
    return TargetTimes(label, tuple(reached), never, lower, median, upper, spread)


def quantile(reached: Sequence[float], never: int, q: float) -> float:
    """The quantile of times of which some are infinite, between neighbours by their distance.

    Args:
        reached: The finite ones, in rising order.
        never: How many are infinite; at least one of both.
        q: From 0 to 1.
    """
    place = q * (len(reached) + never - 1)
    below = math.floor(place)
    fraction = place - below
    if below + (fraction > 0) >= len(reached):
        return math.inf
    return reached[below] + (fraction * (reached[below + 1] - reached[below]) if fraction else 0.0)


def _over_policies(searches: Sequence[Search]) -> tuple[Panel, ...]:
    return tuple(
        Panel(title, tuple(times_of(label, same) for label, same in grouped(labels(group), group).items()))
        for title, group in panels(searches, by_slots=True)
    )


def _target(searches: Sequence[Search], kind: str) -> tuple[str, float, float]:
    by_target: dict[float, Search] = {}
    for search in searches:
        by_target.setdefault(need(search, "target", kind, "target"), search)
    if len(by_target) > 1:
        (one, first), (two, second) = list(by_target.items())[:2]
        raise InvalidInput(
            f"--kind {kind} compares times to one target, and {first.where} has {one:g}, {second.where} has {two:g}"
        )
    reached = [search.time_to_target for search in searches if search.time_to_target is not None]
    vain = [search.time or 0.0 for search in searches if search.time_to_target is None]
    return searches[0].metric, next(iter(by_target)), max(reached + vain)
