"""The workload of simulated jobs: recorded curves, or curves from a function."""

from __future__ import annotations

import json
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from hopyard.errors import InvalidInput
from hopyard.traces import Trace


@dataclass(frozen=True, slots=True)
class Lesson:
    """The complete training of one configuration, on a slot of speed 1.

    Attributes:
        values: The metric at each report; NaN and infinities are allowed. Training ends with the last value.
        seconds: The training time for each report, >= 0.
        positions: The position of each report, ascending.
        others: Further metrics by name, with a value for each report.
    """

    values: Sequence[float]
    seconds: Sequence[float]
    positions: Sequence[int]
    others: Mapping[str, Sequence[float]] = field(default_factory=dict)


class Workload(ABC):
    """The set of configurations and their training.

    Attributes:
        metric: The metric's name.
        mode: Whether larger (max) or smaller (min) values are better.
        max_position: The position at which a job is complete, >= 1.
    """

    metric: str = "metric"
    mode: Literal["max", "min"] = "max"
    max_position: int = 1

    @abstractmethod
    def configurations(self, order_seed: int | None) -> Sequence[Mapping[str, Any]]:
        """Return the configurations in the order in which jobs get them; shuffled if `order_seed` is given."""

    @abstractmethod
    def lesson(self, hyperparameters: Mapping[str, Any]) -> Lesson:
        """Return the training of a configuration; equal for equal configurations.

        Raises:
            InvalidInput: The configuration is unknown.
        """


class TraceWorkload(Workload):
    """Replays recorded curves: each trace is a configuration.

    A curve shorter than the longest one stands for a program that ended early; null stands for a report that is not
    finite.

    Args:
        traces: Traces with one metric and mode.
        max_position: The position at which jobs are complete; None: the end of the longest curve.

    Raises:
        InvalidInput: There is no trace, two have the same hyperparameters, or the max position is below 1.
    """

    def __init__(self, traces: Iterable[Trace], max_position: int | None = None) -> None:
        self._traces = list(traces)
        if not self._traces:
            raise InvalidInput(
                "there is no trace to simulate; record some with `hopyard run FILE --export-trace TRACES`"
            )
        self.metric, self.mode = self._traces[0].metric, self._traces[0].mode
        longest = max(trace.positions[-1] for trace in self._traces)
        self.max_position = _at_least_1(max_position if max_position is not None else longest)
        self._lessons: dict[str, Lesson] = {}
        owners: dict[str, str] = {}
        for trace in self._traces:
            key = _key(trace.hyperparameters)
            if key in owners:
                raise InvalidInput(
                    f"traces of jobs {owners[key]} and {trace.job} have the same hyperparameters, so a configuration would "
                    "have two curves; leave one out"
                )
            owners[key] = trace.job
            self._lessons[key] = Lesson(trace.metrics, trace.seconds, trace.positions, trace.others)

    def configurations(self, order_seed: int | None) -> Sequence[Mapping[str, Any]]:
        """Return the configurations of the traces, in order or shuffled."""
        return _ordered([trace.hyperparameters for trace in self._traces], order_seed)

    def lesson(self, hyperparameters: Mapping[str, Any]) -> Lesson:
        """Return the recorded curve of a configuration.

        Raises:
            InvalidInput: No trace has these hyperparameters, for example because a policy changed them.
        """
        found = self._lessons.get(_key(hyperparameters))
        if found is None:
            raise InvalidInput(
                f"no trace has the hyperparameters {dict(hyperparameters)}: a policy that changes them, or a generator that "
                "proposes others, can be simulated on curves from a function only (CurveWorkload)"
            )
        return found


class CurveWorkload(Workload):
    """Curves from a function.

    Args:
        curve: Returns the metric of a configuration at a position (1, 2, ...).
        configurations: The configurations, in order.
        max_position: The position at which jobs are complete, >= 1.
        seconds: The duration of a position: a number, or a function like `curve`.
        metric: The metric's name.
        mode: Whether larger (max) or smaller (min) values are better.

    Raises:
        InvalidInput: The max position is below 1.
    """

    def __init__(
        self,
        curve: Callable[[Mapping[str, Any], int], float],
        configurations: Sequence[Mapping[str, Any]],
        max_position: int,
        *,
        seconds: float | Callable[[Mapping[str, Any], int], float] = 1.0,
        metric: str = "metric",
        mode: Literal["max", "min"] = "max",
    ) -> None:
        self._curve, self._seconds = curve, seconds
        self._configurations = configurations
        self.max_position, self.metric, self.mode = _at_least_1(max_position), metric, mode

    def configurations(self, order_seed: int | None) -> Sequence[Mapping[str, Any]]:
        """Return the configurations, in order or shuffled."""
        return _ordered(self._configurations, order_seed)

    def lesson(self, hyperparameters: Mapping[str, Any]) -> Lesson:
        """Return the curve of a configuration, computed on access; invalid durations are rejected there."""
        values = _Computed(self._curve, hyperparameters, self.max_position)
        seconds = _Durations(self._seconds, hyperparameters, self.max_position)
        return Lesson(values, seconds, range(1, self.max_position + 1))


class _Computed(Sequence[float]):
    """A value for each position, constant or computed by a function on access."""

    def __init__(
        self, function: float | Callable[[Mapping[str, Any], int], float], given: Mapping[str, Any], length: int
    ) -> None:
        self._function = function if callable(function) else lambda _given, _position: function
        self._given, self._positions = given, range(1, length + 1)

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, index: Any) -> Any:
        return self._function(self._given, self._positions[index])


class _Durations(_Computed):
    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if not 0 <= found < math.inf:
            raise InvalidInput(f"position {index + 1} takes {found!r} s; allowed are finite numbers >= 0")
        return found


def _at_least_1(max_position: int) -> int:
    if max_position < 1:
        raise InvalidInput(f"max_position (--max-iterations) must be at least 1, found {max_position!r}")
    return max_position


def noisy(lesson: Lesson, deviation: float, rng: random.Random) -> Lesson:
    """Add normal noise with a standard deviation to a lesson's reports."""
    return replace(lesson, values=[value + rng.gauss(0.0, deviation) for value in lesson.values])


def _key(hyperparameters: Mapping[str, Any]) -> str:
    return json.dumps(hyperparameters, sort_keys=True, default=str)


def _ordered(configurations: Sequence[Mapping[str, Any]], order_seed: int | None) -> Sequence[Mapping[str, Any]]:
    if order_seed is None:
        return configurations
    order = list(range(len(configurations)))
    random.Random(f"order/{order_seed}").shuffle(order)
    return [configurations[index] for index in order]
