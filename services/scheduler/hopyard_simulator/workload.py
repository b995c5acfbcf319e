"""The workload of a simulation: configurations with recorded learning curves, or with curves from a function."""

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
        values: The value of the metric in each report; NaN and infinities are allowed. Training ends with the last
            report.
        seconds: The training time in seconds from the previous report to each report, 0 or more.
        positions: The position of each report, ascending.
        others: The values of further metrics by name, one for each report.
    """

    values: Sequence[float]
    seconds: Sequence[float]
    positions: Sequence[int]
    others: Mapping[str, Sequence[float]] = field(default_factory=dict)


class Workload(ABC):
    """The configurations of a simulation and the training of each.

    Attributes:
        metric: The metric's name.
        mode: Whether larger (max) or smaller (min) values are better.
        max_position: The position at which a job is complete, 1 or more.
    """

    metric: str = "metric"
    mode: Literal["max", "min"] = "max"
    max_position: int = 1

    @abstractmethod
    def configurations(self, order_seed: int | None) -> Sequence[Mapping[str, Any]]:
        """Return the configurations in the order in which jobs get them.

        Args:
            order_seed: Seed to shuffle them; None: the order of the workload.
        """

    @abstractmethod
    def lesson(self, hyperparameters: Mapping[str, Any]) -> Lesson:
        """Return the complete training of a configuration: its reports and the training time before each.

        The results for equal configurations must be equal.

        Raises:
            InvalidInput: The configuration is unknown.
        """


class TraceWorkload(Workload):
    """A workload of recorded learning curves. Each trace is the recorded training of one configuration.

    A curve that is shorter than the longest one represents a program that ended by itself. The value null represents a
    report that is not finite.

    Args:
        traces: Traces with the same metric and mode, at least one.
        max_position: The position at which jobs are complete, 1 or more; None: the end of the longest curve.

    Raises:
        InvalidInput: There is no trace, two have the same hyperparameters, or `max_position` is less than 1.
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
        """Return the configurations of the traces, in their order or shuffled if `order_seed` is given."""
        return _ordered([trace.hyperparameters for trace in self._traces], order_seed)

    def lesson(self, hyperparameters: Mapping[str, Any]) -> Lesson:
        """Return the recorded training of a configuration: its reports and the training time before each.

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
    """A workload whose learning curves are computed by a function.

    Args:
        curve: Returns the metric of a configuration at a position (1, 2, ...).
        configurations: The configurations, in order.
        max_position: The position at which jobs are complete, 1 or more.
        seconds: The seconds from the previous position to a position: a number, or a function with the arguments of
            `curve`.
        metric: The metric's name.
        mode: Whether larger (max) or smaller (min) values are better.

    Raises:
        InvalidInput: `max_position` is less than 1.
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
        """Return the configurations, in their order or shuffled if `order_seed` is given."""
        return _ordered(self._configurations, order_seed)

    def lesson(self, hyperparameters: Mapping[str, Any]) -> Lesson:
        """Return the training of a configuration: its reports and the training time before each. They are computed on access.

        Access to a training time raises InvalidInput if the function returns a negative or infinite one.
        """
        values = _Computed(self._curve, hyperparameters, self.max_position)
        seconds = _Durations(self._seconds, hyperparameters, self.max_position)
        return Lesson(values, seconds, range(1, self.max_position + 1))


class _Computed(Sequence[float]):
    """The values of a function for the positions 1, 2, ..., computed on access.

    Args:
        function: Returns the value for a configuration and a position; a number: all values are equal to it.
        given: The configuration.
        length: The number of positions.
    """

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
    """Return a copy of a training with normal noise added to the metric of each report.

    Args:
        lesson: The complete training of a configuration.
        deviation: The standard deviation of the noise.
        rng: The random number generator.
    """
    return replace(lesson, values=[value + rng.gauss(0.0, deviation) for value in lesson.values])


def _key(hyperparameters: Mapping[str, Any]) -> str:
    return json.dumps(hyperparameters, sort_keys=True, default=str)


def _ordered(configurations: Sequence[Mapping[str, Any]], order_seed: int | None) -> Sequence[Mapping[str, Any]]:
    if order_seed is None:
        return configurations
    order = list(range(len(configurations)))
    random.Random(f"order/{order_seed}").shuffle(order)
    return [configurations[index] for index in order]
