"""Data of the plots of the time to the target.

`boxes` compares policies (HyperDrive, figures 7 and 9), `capacity` numbers of slots (12b), `orders` orders of configurations (12c). The
time to the target is the time from the start of a search to the first job that reaches the target of the metric. It is infinite for a
search that never reached its target; such searches are included in quantiles.
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
    """The times to the target of the searches of one policy: each from the start of a search until a job reaches the target.

    Attributes:
        label: The label of these searches: their policy, and their predictor or source if other searches of the plot have different
            ones.
        times: Times to the target in seconds, ascending, of the searches that reached it.
        never: Number of searches that did not reach the target.
        lower: Lower quartile in seconds over all searches, including those that never reached the target; may be infinite.
        median: Median of the same values.
        upper: Upper quartile of the same values.
        spread: Difference in seconds between the longest and the shortest time to the target; infinite if a search never reached it.
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
        """Number of searches, including those that did not reach the target."""
        return len(self.times) + self.never


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of a plot: policies whose searches are comparable, since they replayed the same traces on the same number of slots.

    Attributes:
        title: What the searches have in common; empty if the plot has only one panel.
        policies: The times to the target of each policy.
    """

    title: str
    policies: tuple[TargetTimes, ...]


@dataclass(frozen=True, slots=True)
class Targets:
    """Times to the target in panels of comparable searches: base class of the data of the plots `boxes` and `orders`.

    Attributes:
        metric: Name of the metric.
        target: The value of the metric that all searches had to reach.
        longest: The longest time in seconds that a search took until the target, or until its end without reaching the target.
        panels: The panels.
    """

    metric: str
    target: float
    longest: float
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Boxes(Targets):
    """Data of the plot `boxes`: the times to the target of each policy."""


@dataclass(frozen=True, slots=True)
class TargetOrders(Targets):
    """Data of the plot `orders`: the times to the target of each policy, in searches with different orders of the configurations."""


@dataclass(frozen=True, slots=True)
class TargetScaling:
    """The times to the target of one policy over the number of slots.

    Attributes:
        label: The label of the searches (see `labels`).
        slots: Numbers of slots, ascending.
        times: The times to the target of the searches with each of these numbers of slots, in the order of `slots`. Each item
            describes one or several searches, in seconds; searches that never reached the target are counted in `TargetTimes.never`.
    """

    label: str
    slots: tuple[int, ...]
    times: tuple[TargetTimes, ...]


@dataclass(frozen=True, slots=True)
class CapacityPanel:
    """A panel of the plot `capacity`: policies whose searches replayed the same traces.

    Attributes:
        title: What the searches have in common; empty if the plot has only one panel.
        policies: The times to the target of each policy, by number of slots.
    """

    title: str
    policies: tuple[TargetScaling, ...]


@dataclass(frozen=True, slots=True)
class Capacity:
    """Data of the plot `capacity`: times to the target over the number of slots.

    Attributes:
        metric: Name of the metric.
        target: The value of the metric that all searches had to reach.
        longest: The longest time in seconds that a search took until the target, or until its end without reaching the target.
        panels: The panels, one for each group of comparable searches.
    """

    metric: str
    target: float
    longest: float
    panels: tuple[CapacityPanel, ...]


def boxes(searches: Sequence[Search]) -> Boxes:
    """Return the data of the plot `boxes`: the times to the target of each policy (see `times_of`).

    Raises:
        InvalidInput: A search has no target, or the searches have different targets. Searches that never reached it are allowed.
    """
    metric, target, longest = _target(searches, "boxes")
    return Boxes(metric, target, longest, _over_policies(searches))


def orders(searches: Sequence[Search]) -> TargetOrders:
    """Return the data of the plot `orders`: the times to the target of each policy (see `times_of`) over orders of the configurations.

    Raises:
        InvalidInput: A search has no target or no order seed (the seed of the order of its configurations, `Search.order_seed`), the
            searches have different targets, or all have the same order seed.
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
    """Return the data of the plot `capacity`: the times to the target of each policy (see `times_of`) over numbers of slots.

    Raises:
        InvalidInput: A search has no target or no number of slots, the searches have different targets, or all have the same number of
            slots.
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
    """Return the times to the target of the searches of one policy.

    The time to the target is the time from the start of a search until its first job reaches the target value of the metric.

    Args:
        label: The label of the result.
        searches: At least one search.
    """
    reached = sorted(search.time_to_target for search in searches if search.time_to_target is not None)
    never = len(searches) - len(reached)
    lower, median, upper = (quantile(reached, never, q) for q in QUARTILES)
    spread = math.inf if never else reached[-1] - reached[0]
    return TargetTimes(label, tuple(reached), never, lower, median, upper, spread)


def quantile(reached: Sequence[float], never: int, q: float) -> float:
    """Return a quantile of times, with linear interpolation between neighbours; infinite if a neighbour is infinite.

    Args:
        reached: The finite times, ascending.
        never: Number of infinite times. There is at least one time, finite or infinite.
        q: The quantile, from 0 to 1.
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
