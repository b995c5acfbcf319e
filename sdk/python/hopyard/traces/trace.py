"""The trace of one job (its learning curve with training times), and the validation of its values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import lt
from typing import Any, Final, Literal

from hopyard.errors import InvalidInput
from hopyard.space.values import json_problem

MODES: Final = ("max", "min")

_NOTHING: Final = type(None)


@dataclass(frozen=True, slots=True)
class Trace:
    """The reports of one job from its beginning, with the training time of each. Equal traces compare equal.

    Values that are not finite are all NaN, as schedulers and policies treat them alike. In a file they are null.

    Attributes:
        job: Id of the job, unique among the traces that are used together.
        hyperparameters: The configuration: JSON values by name.
        metric: Name of the metric that the experiment optimizes.
        mode: Whether higher ("max") or lower ("min") values of the metric are better.
        metrics: Values of the metric, one for each report, at least one; NaN: not finite or not reported.
        seconds: Training time from the previous report (or the beginning) to each report, 0 or more.
        positions: Position of each report, at least 1 and ascending; empty: 1, 2, 3, ...
        others: Values of further metrics by name, one for each report; NaN as in `metrics`.

    Raises:
        InvalidInput: A value is not as described. The message names the field.
    """

    job: str
    hyperparameters: Mapping[str, Any]
    metric: str
    mode: Literal["max", "min"]
    metrics: tuple[float, ...]
    seconds: tuple[float, ...]
    positions: Sequence[int] = ()
    others: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Validate all fields and convert them to one form: tuples of floats, and a range for positions 1, 2, 3, ..."""
        for name in ("job", "metric"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise _wrong(f'"{name}"', getattr(self, name), "a text that is not empty")
        if not isinstance(self.hyperparameters, Mapping):
            raise _wrong('"hyperparameters"', self.hyperparameters, "an object")
        if problem := _problem(self.hyperparameters):
            raise InvalidInput(f'"hyperparameters": {problem}; allowed are JSON values by name')
        if self.mode not in MODES:
            raise _wrong('"mode"', self.mode, " and ".join(f'"{mode}"' for mode in MODES))
        metrics = _values('"metrics"', self.metrics)
        if not metrics:
            raise InvalidInput('"metrics": found none; a trace has at least one report')
        put = object.__setattr__
        put(self, "metrics", metrics)
        put(self, "seconds", self._as_many('"seconds"', _seconds(self.seconds)))
        put(self, "positions", self._as_many('"positions"', _positions(self.positions, len(metrics))))
        if not isinstance(self.others, Mapping):
            raise _wrong('"others"', self.others, "an object")
        others = {}
        for name in self.others:
            if not isinstance(name, str) or not name or name == self.metric:
                raise InvalidInput(
                    f'"others": found the name {name!r}, allowed are names of metrics beside {self.metric!r}'
                )
            field_name = f'"others": "{name}"'
            others[name] = self._as_many(field_name, _values(field_name, self.others[name]))
        put(self, "others", others)

    def _as_many(self, name: str, values: Any) -> Any:
        if len(values) != len(self.metrics):
            count = f"{len(values)} value{'' if len(values) == 1 else 's'}"
            raise InvalidInput(f'{name}: {count}, but "metrics" has {len(self.metrics)}')
        return values


def _problem(hyperparameters: Mapping[str, Any]) -> str | None:
    try:
        return json_problem(hyperparameters)
    except RecursionError:
        return "nested too deeply"


def _values(name: str, given: object) -> tuple[float, ...]:
    """Convert the values of a metric to floats. All values that are not finite become the object `math.nan`.

    With one NaN object, tuples compare equal, since Python compares identical items as equal.

    Args:
        name: Name of the field in error messages.
        given: The values, a sequence of numbers and None.

    Raises:
        InvalidInput: `given` is something else.
    """
    numbers = _numbers(name, given, (int, float, _NOTHING), "numbers and null")
    return tuple([number if math.isfinite(number) else math.nan for number in numbers])


def _seconds(given: object) -> tuple[float, ...]:
    numbers = _numbers('"seconds"', given, (int, float), "numbers of 0 or more")
    for index, number in enumerate(numbers):
        if not 0 <= number < math.inf:
            raise _wrong(f'"seconds"[{index}]', number, "numbers of 0 or more")
    return numbers


def _numbers(name: str, given: object, types: tuple[type, ...], allowed: str) -> tuple[float, ...]:
    found = _sequence(name, given, allowed)
    if not set(map(type, found)) <= set(types):  # in one step, since nearly all traces are right
        for index, value in enumerate(found):
            if isinstance(value, bool) or not isinstance(value, types):
                raise _wrong(f"{name}[{index}]", value, allowed)
    try:
        return tuple([math.nan if value is None else float(value) for value in found])
    except OverflowError:
        raise InvalidInput(f"{name}: found a whole number beyond the largest double") from None


def _positions(given: object, reports: int) -> Sequence[int]:
    """Validate positions. Return `range(1, n + 1)` if they are 1, 2, 3, ..., n (the usual case), which needs no memory, else a tuple.

    Args:
        given: The positions; empty: 1, 2, 3, ...
        reports: The number of reports.

    Raises:
        InvalidInput: A position is not a whole number of 1 or more, or not above the one before it.
    """
    allowed = "whole numbers from 1 on, each above the one before"
    if isinstance(given, range) and given == range(1, reports + 1):
        return given
    found = _sequence('"positions"', given, allowed)
    if not found:
        return range(1, reports + 1)
    for index, value in enumerate(found):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise _wrong(f'"positions"[{index}]', value, allowed)
    if not all(map(lt, found, found[1:])):
        index = next(index for index in range(1, len(found)) if found[index] <= found[index - 1])
        raise InvalidInput(
            f'"positions"[{index}]: found {found[index]} after {found[index - 1]}, allowed are {allowed}'
        )
    counted = range(1, len(found) + 1)
    return counted if found[-1] == len(found) else tuple(found)


def _sequence(name: str, given: object, allowed: str) -> Sequence[Any]:
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise _wrong(name, given, f"a list of {allowed}")
    return given


def _wrong(name: str, found: object, allowed: str) -> InvalidInput:
    return InvalidInput(
        f"{name}: found {found!r:.80}, allowed {'is' if allowed.startswith(('a ', 'an ')) else 'are'} {allowed}"
    )
