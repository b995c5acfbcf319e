"""Numbering of the configurations of a space: counts them and finds configuration number n without listing all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from hopyard.space.conditions import Condition

Held: TypeAlias = frozenset[Condition]
"""The conditions that hold so far, limited to those that later names depend on."""


class Numbering:
    """Numbers the configurations of a space from 0. The value of the last parameter changes fastest.

    `places` describes a configuration by the index of the value of each parameter that is part of it. The values of a parameter
    have the indices 0 to their number - 1.

    Args:
        conditions: The dotted names of the parameters in order, each with the conditions under which it is part of a
            configuration. Conditions refer to earlier parameters only.
        lengths: Number of values of each parameter (>= 1), by dotted name.
        place: Function that receives the dotted name of a parameter and a value, and returns the index of the value; None: the
            parameter does not have that value.
    """

    def __init__(
        self,
        conditions: Mapping[str, Sequence[Condition]],
        lengths: Mapping[str, int],
        place: Callable[[str, object], int | None],
    ) -> None:
        self._names = list(conditions)
        self._conditions = [frozenset(conditions[name]) for name in self._names]
        self._lengths = [lengths[name] for name in self._names]
        self._asked: list[Held] = [frozenset()] * (len(self._names) + 1)
        for index in reversed(range(len(self._names))):
            self._asked[index] = self._asked[index + 1] | self._conditions[index]
        everything = sorted(self._asked[0], key=lambda condition: (condition.name, condition.keys))
        self._spans = [
            _spans([c for c in everything if c.name == name], length, place)
            for name, length in zip(self._names, self._lengths, strict=True)
        ]
        self._counts: dict[tuple[int, Held], int] = {}

    @property
    def size(self) -> int:
        """The number of configurations, all combinations of values that the conditions allow."""
        return self._count(0, frozenset())

    def places(self, index: int) -> dict[str, int] | None:
        """Return configuration number `index` as a mapping from the name of each of its parameters to the index of its value.

        The result is None unless 0 <= index < size.
        """
        held, rest, found = Held(), index, dict[str, int]()
        if not 0 <= index < self.size:
            return None
        for position, name in enumerate(self._names):
            if not self._conditions[position] <= held:
                continue
            for start, stop, holding in self._spans[position]:
                after = held | holding
                each = self._count(position + 1, after)
                if rest < (stop - start) * each:
                    place, rest = divmod(rest, each)
                    found[name] = start + place
                    held = after
                    break
                rest -= (stop - start) * each
        return found

    def _count(self, position: int, held: Held) -> int:
        """Return the number of combinations of values of the parameters from index `position` on that the conditions allow.

        Args:
            position: Index of a parameter in the order of the space.
            held: Those conditions on earlier parameters that hold.
        """
        factor = 1
        while position < len(self._names):
            spans = self._spans[position]
            if self._conditions[position] <= held:
                if len(spans) > 1 or spans[0][2]:
                    break
                factor *= self._lengths[position]
            position += 1
        else:
            return factor
        key = (position, held & self._asked[position])
        if key not in self._counts:
            self._counts[key] = sum(
                (stop - start) * self._count(position + 1, held | holding)
                for start, stop, holding in self._spans[position]
            )
        return factor * self._counts[key]


def _spans(
    conditions: list[Condition], length: int, place: Callable[[str, object], int | None]
) -> list[tuple[int, int, Held]]:
    """Divide the value indices of a parameter into half-open ranges in which the same conditions hold.

    Args:
        conditions: All conditions that refer to the parameter.
        length: The number of the parameter's values.
        place: Function that receives the dotted name of a parameter and a value, and returns the index of the value; None: the
            parameter does not have that value.

    Returns:
        (start, stop, conditions that hold) for each range, ascending and without gaps.
    """
    special = dict[int, set[Condition]]()
    for condition in conditions:
        for value in condition.values:
            if (found := place(condition.name, value)) is not None:
                special.setdefault(found, set()).add(condition)
    spans, start = list[tuple[int, int, Held]](), 0
    for at in sorted(special):
        if start < at:
            spans.append((start, at, frozenset()))
        spans.append((at, at + 1, frozenset(special[at])))
        start = at + 1
    if start < length:
        spans.append((start, length, frozenset()))
    return spans
