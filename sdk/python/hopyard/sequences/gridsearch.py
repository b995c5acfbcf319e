"""A grid of hyperparameter values that is written in Python, with a filter of its combinations."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from hopyard.sequences.base import Sequence
from hopyard.sequences.parse import as_sequence
from hopyard.sequences.rational import JsonValue, SequenceError, show

Filter = Callable[[Mapping[str, Sequence]], bool]


class GridSearchSpace:
    """All combinations of listed values, except those that a filter rejects.

    Iteration yields the configurations that are kept. The value of the last name changes fastest.

        space = GridSearchSpace(
            {"lr": [Constant(0.1), Exponential(0.1, 0.95)], "bs": [128, MultiStep(128, [40], 2)]},
            filter=lambda found: found["bs"].value(0) == 128,
        )
        hopyard.run({..., "space": space.to_dict(), "generator": space.generator})

    Args:
        parameters: Lists of sequences and plain JSON values by name, at least one value each.
        filter: Receives each combination, as sequences by name (a plain value is a constant sequence), and returns True to keep
            it. None: all combinations are kept.

    Raises:
        SequenceError: A name has no values, or the filter keeps no combination.
    """

    def __init__(self, parameters: Mapping[str, list[Any]], filter: Filter | None = None) -> None:
        self._values = dict[str, list[JsonValue]]()
        for name, values in parameters.items():
            if not isinstance(values, list | tuple) or not values:
                raise SequenceError(f"needs a list of values, found {show(values)}", (name,))
            self._values[name] = [cast(JsonValue, v.written()) if isinstance(v, Sequence) else v for v in values]
        names = list(self._values)
        self._points = list[int]()
        self._all = list(itertools.product(*self._values.values()))
        for index, point in enumerate(self._all):
            if filter is None or filter({name: as_sequence(v) for name, v in zip(names, point, strict=True)}):
                self._points.append(index)
        if not self._points:
            raise SequenceError(f"the filter keeps none of {len(self._all)} configurations; loosen it")

    def to_dict(self) -> dict[str, JsonValue]:
        """Return the field `space` of an experiment with the listed values. The filter is not included."""
        return {name: {"choice": values} for name, values in self._values.items()}

    @property
    def generator(self) -> dict[str, JsonValue]:
        """The field `generator` of an experiment: the grid generator, with the numbers of the combinations that the filter keeps.

        Combinations are numbered from 0 with the value of the last name changing fastest, as in `grid`. The numbers are omitted
        if the filter keeps all combinations.
        """
        everything = len(self._points) == len(self._all)
        return {"name": "grid"} if everything else {"name": "grid", "points": cast(JsonValue, list(self._points))}

    def __iter__(self) -> Iterator[dict[str, JsonValue]]:
        """Yield the configurations that are kept, each as JSON values and sequences in written form by name."""
        return (dict(zip(self._values, self._all[index], strict=True)) for index in self._points)

    def __len__(self) -> int:
        """Return the number of configurations that are kept."""
        return len(self._points)
