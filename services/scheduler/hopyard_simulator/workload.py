"""What simulated jobs train: recorded curves, or curves that a function gives."""

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
    """The whole training of one configuration, on a machine of speed 1.

    Attributes:
        values: The metric at each report; NaN and infinities are legal. It trains no further than they reach.
        seconds: How long it trained for each, >= 0.
        positions: Where each report was, rising.
        others: Further metrics by name, a value for each report.
    """

    values: Sequence[float]
    seconds: Sequence[float]
    positions: Sequence[int]
    others: Mapping[str, Sequence[float]] = field(default_factory=dict)


class Workload(ABC):
    """What there is to train.

    Attributes:
        metric: The metric's name.
        mode: Whether larger (max) or smaller (min) values are better.
        max_position: Where a job is complete, >= 1.
    """

    metric: str = "metric"
    mode: Literal["max", "min"] = "max"
    max_position: int = 1

    @abstractmethod
    def configurations(self, order_seed: int | None) -> Sequence[Mapping[str, Any]]:
        """The configurations in the order in which jobs get them; `order_seed` None: the workload's own, else shuffled."""

    @abstractmethod
    def lesson(self, hyperparameters: Mapping[str, Any]) -> Lesson:
        """How a configuration trains. The same configuration trains alike.

        Raises:
            InvalidInput: Nothing is known about it.
        """


class TraceWorkload(Workload):
    """Replays recorded curves: each trace is a configuration.

    A curve that ends before the longest one does is a program that ended by itself there; null is a report that is not finite.

    Args:
        traces: All of one metric and mode.
        max_position: Where jobs are complete; None: where the longest curve ends.

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
        """The traces' configurations, in the order of the traces or shuffled."""
        return _ordered([trace.hyperparameters for trace in self._traces], order_seed)

    def lesson(self, hyperparameters: Mapping[str, Any]) -> Lesson:
        """The recorded curve of a configuration.

        Raises:
            InvalidInput: No trace has these hyperparameters, as when a policy changes some.
        """
        found = self._lessons.get(_key(hyperparameters))
        if found is None:
            raise InvalidInput(
                f"no trace has the hyperparameters {dict(hyperparameters)}: a policy that changes them, or a generator that "
                "proposes others, can be simulated on curves from a function only (CurveWorkload)"
            )
        return found


class CurveWorkload(Workload):
    """Curves that a function gives.

    Args:
        curve: The metric of a configuration at a position (1, 2, ...).
        configurations: What jobs get, in order.
        max_position: Where jobs are complete, >= 1.
        seconds: How long a position takes: a number, or a function like `curve`.
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
        """The given configurations, in their order or shuffled."""
        return _ordered(self._configurations, order_seed)

    def lesson(self, hyperparameters: Mapping[str, Any]) -> Lesson:
        """The curve of any configuration, computed as far as it is looked at; impossible times are refused there."""
        values = _Computed(self._curve, hyperparameters, self.max_position)
        seconds = _Durations(self._seconds, hyperparameters, self.max_position)
        return Lesson(values, seconds, range(1, self.max_position + 1))


class _Computed(Sequence[float]):
    """A value for each position, from a function or always the same, made when it is looked at."""

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
    """A lesson whose reports differ by normal noise of this standard deviation."""
    return replace(lesson, values=[value + rng.gauss(0.0, deviation) for value in lesson.values])


def _key(hyperparameters: Mapping[str, Any]) -> str:
    return json.dumps(hyperparameters, sort_keys=True, default=str)


def _ordered(configurations: Sequence[Mapping[str, Any]], order_seed: int | None) -> Sequence[Mapping[str, Any]]:
    if order_seed is None:
        return configurations
    order = list(range(len(configurations)))
    random.Random(f"order/{order_seed}").shuffle(order)
    return [configurations[index] for index in order]
