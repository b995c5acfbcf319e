"""Helpers for plots of several searches: labels, groups of searches that share a label, panels of comparable searches."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from itertools import groupby
from typing import Any, TypeVar

from hopyard.errors import InvalidInput
from hopyard.plots.model import Search, SearchSource

T = TypeVar("T")


def need(search: Search, field: str, kind: str, key: str) -> Any:
    """Return the value of a field of a search that a kind of plot requires.

    Args:
        search: The search.
        field: Name of the field in `Search`.
        kind: The kind of plot, for the error message.
        key: What the error message calls the field, for people.

    Raises:
        InvalidInput: The field is None.
    """
    value = getattr(search, field)
    if value is None:
        hint = ""
        if search.source is SearchSource.SIMULATION and field in ("curves", "runs", "visits"):
            hint = "; hopyard simulate --json --details prints them"
        raise InvalidInput(f"{search.where}: it has no {key}, which --kind {kind} shows{hint}")
    return value


def one(searches: Sequence[Search], kind: str) -> Search:
    """Return the search of a sequence that must contain exactly one.

    Args:
        searches: At least one search.
        kind: The kind of plot, for the error message.

    Raises:
        InvalidInput: There are several searches.
    """
    if len(searches) > 1:
        raise InvalidInput(
            f"--kind {kind} shows one search, and here are {len(searches)}: {searches[0].where}, {searches[1].where}"
            f"{', ...' if len(searches) > 2 else ''}; name one of them, or compare them with --kind boxes or durations"
        )
    return searches[0]


def labels(searches: Sequence[Search]) -> list[str]:
    """Return a label for each search, in order: the name of its policy, or its source (live, simulated, traces) if it has none.

    The predictor of a search, if it has one, is added if the searches have at least two different predictors; the source is added if
    they have different sources. Searches that agree in all of these have the same label.
    """
    predictors = {search.predictor for search in searches if search.predictor is not None}
    sources = {search.source for search in searches}
    found = []
    for search in searches:
        name = search.policy or search.source.value
        if search.predictor is not None and len(predictors) > 1:
            name += f" + {search.predictor}"
        if len(sources) > 1 and search.policy is not None:
            name += f", {search.source.value}"
        found.append(name)
    return found


def grouped(keys: Iterable[T], searches: Iterable[Search]) -> dict[T, list[Search]]:
    """Return the searches of each key. Keys, and searches of one key, are in the order of their first appearance.

    Args:
        keys: One key per search.
        searches: As many searches as keys.
    """
    groups: dict[T, list[Search]] = {}
    for key, search in zip(keys, searches, strict=True):
        groups.setdefault(key, []).append(search)
    return groups


def panels(searches: Sequence[Search], *, by_slots: bool) -> list[tuple[str, list[Search]]]:
    """Return panels as pairs (title, searches). Searches in one panel may be compared with each other.

    Searches that replayed different traces are in different panels. The title says what the searches of a panel have in common; if
    there is only one panel, its title is empty.

    Args:
        searches: At least one search.
        by_slots: Whether searches with different numbers of slots are in different panels, too.
    """
    several = len({search.traces for search in searches}) > 1

    def key(search: Search) -> Hashable:
        return search.traces, (search.slots if by_slots else None)

    groups = grouped(map(key, searches), searches)
    if len(groups) == 1:
        return [("", list(searches))]
    named = []
    for group in groups.values():
        first = group[0]
        parts = [", ".join(_short(trace) for trace in first.traces) or "live"] if several else []
        if by_slots:
            parts.append("? slots" if first.slots is None else f"{first.slots} slot{'s' * (first.slots != 1)}")
        named.append((first.traces, first.slots or 0, ", ".join(parts), group))
    ordered = sorted(named, key=lambda item: (item[0], item[1] if by_slots else 0))
    return [(title, group) for _, same in groupby(ordered, key=lambda item: item[0]) for _, _, title, group in same]


def _short(trace: str) -> str:
    name = trace.replace("\\", "/").rpartition("/")[2]
    return name.partition(".")[0] or name


def natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key for natural order, in which numbers inside a name compare as numbers: `job-2` before `job-10`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
