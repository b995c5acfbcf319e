"""The kinds of sequences. Their parameters have the names and meanings of those in torch.optim.lr_scheduler.

In this module, k is the number of units since the beginning of the sequence: the start of the training, the end of the
warm-up that precedes it (`Warmup`), or its milestone in a `Chain`. The field `initial` (`start` in `Linear`) may be None only
if the sequence follows a warm-up; it then has the target of the warm-up. Without a warm-up, None is an error when the
sequence is evaluated.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal, cast

from hopyard.sequences.functions import Fixed, Function, LinearFunction, level, power, root, wave
from hopyard.sequences.kind import NEEDED, SequenceKind, error, is_count
from hopyard.sequences.rational import JsonValue, fraction, is_number, show


@dataclass(frozen=True, eq=False)
class ConstantSequence(SequenceKind):
    """A constant value.

    Attributes:
        value_: The value, which can be any JSON value.
    """

    value_: JsonValue
    kind: ClassVar[str] = "constant"

    def __str__(self) -> str:
        """Return the value as text for tables."""
        return show(self.value_)

    def to_data(self) -> dict[str, JsonValue]:
        """Return the part of the written form below the key `sequence`, such as `{constant: 0.1}`."""
        return {self.kind: self.value_}

    def spans(self, origin: int) -> Iterator[tuple[int, Function]]:
        """Yield one pair of a start position and a function: the constant, in force from `origin` on."""
        yield origin, _held(self.value_)


@dataclass(frozen=True, eq=False)
class Linear(SequenceKind):
    """A linear change over a number of units, then a constant (LinearLR).

    Attributes:
        start: The value at the beginning; None: the target of the preceding warm-up.
        end: The value after `total_iters` units.
        total_iters: The number of units of the change, 1 or more.
    """

    start: float | None = None
    end: float = 0.0
    total_iters: int = NEEDED
    kind: ClassVar[str] = "linear"
    inherits: ClassVar[str | None] = "start"

    def __post_init__(self) -> None:
        """Raise SequenceError unless the fields are valid."""
        self._numbers("start", "end")
        self._counts("total_iters")

    def spans(self, origin: int) -> Iterator[tuple[int, Function]]:
        """Yield pairs of a start position and a function: a linear function from `origin` on, then the constant `end`."""
        start, end = self._fraction("start"), fraction(self.end)
        yield origin, LinearFunction.through(origin, start, (end - start) / self.total_iters)
        yield origin + self.total_iters, LinearFunction(end)


@dataclass(frozen=True, eq=False)
class Exponential(SequenceKind):
    """An exponential change: initial * gamma^k, where k is the number of units since the beginning (ExponentialLR).

    Attributes:
        initial: The value at the beginning; None: the target of the preceding warm-up.
        gamma: The factor per unit, greater than 0.
    """

    initial: float | None = None
    gamma: float = NEEDED
    kind: ClassVar[str] = "exponential"
    inherits: ClassVar[str | None] = "initial"

    def __post_init__(self) -> None:
        """Raise SequenceError unless the fields are valid."""
        self._numbers("initial")
        self._numbers("gamma", positive=True)

    def spans(self, origin: int) -> Iterator[tuple[int, Function]]:
        """Yield one pair of a start position and a function: the exponential function, in force from `origin` on."""
        yield origin, power(origin, Fraction(0), self._fraction("initial"), Fraction(0), fraction(self.gamma))


@dataclass(frozen=True, eq=False)
class Step(SequenceKind):
    """A value that is multiplied by a factor after every `step_size` units (StepLR).

    Attributes:
        initial: The value at the beginning; None: the target of the preceding warm-up.
        step_size: The number of units between two changes, 1 or more.
        gamma: The factor, greater than 0.
    """

    initial: float | None = None
    step_size: int = NEEDED
    gamma: float = NEEDED
    kind: ClassVar[str] = "step"
    inherits: ClassVar[str | None] = "initial"

    def __post_init__(self) -> None:
        """Raise SequenceError unless the fields are valid."""
        self._numbers("initial")
        self._counts("step_size")
        self._numbers("gamma", positive=True)

    def spans(self, origin: int) -> Iterator[tuple[int, Function]]:
        """Yield pairs of a start position and a function: a constant for each step from `origin` on, without end."""
        value, gamma = self._fraction("initial"), fraction(self.gamma)
        if self.step_size == 1 or gamma == 1:
            yield origin, power(origin, Fraction(0), value, Fraction(0), gamma)
            return
        for times in itertools.count():
            yield origin + times * self.step_size, level(value, gamma, times)


@dataclass(frozen=True, eq=False)
class MultiStep(SequenceKind):
    """A new value at each milestone: the previous value times `gamma` (MultiStepLR), or the next one of `values`.

    Milestones count from the start of the training. After a warm-up, they count from the start of the warm-up; in a `Chain`, from
    the position where this sequence begins. Either `gamma` or `values` must be given.

    Attributes:
        initial: The value before the first milestone; None: the target of the preceding warm-up. Not allowed with
            `values`.
        milestones: The positions of the changes, ascending, 1 or more.
        gamma: The factor at each milestone, greater than 0; None: `values` is given.
        values: The values, which can be any JSON values, one more than there are milestones; None: `gamma` is given.
    """

    initial: float | None = None
    milestones: tuple[int, ...] = ()
    gamma: float | None = None
    values: tuple[JsonValue, ...] | None = None
    kind: ClassVar[str] = "multi_step"
    inherits: ClassVar[str | None] = "initial"
    milestones_from_start: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Raise SequenceError unless the fields are valid."""
        self._rising("milestones")
        if self.values is None:
            if self.gamma is None:
                raise error(self, "gamma", "needs gamma or values, found neither")
            self._numbers("initial")
            self._numbers("gamma", positive=True)
            return
        for name in ("initial", "gamma"):
            if getattr(self, name) is not None:
                raise error(self, name, "is given together with values; allowed: one of them")
        count = len(self.milestones) + 1
        if not isinstance(self.values, list | tuple) or len(self.values) != count:
            raise error(self, "values", f"needs {count} values, one more than milestones, found {show(self.values)}")
        object.__setattr__(self, "values", tuple(self.values))

    def spans(self, origin: int) -> Iterator[tuple[int, Function]]:
        """Yield pairs of a start position and a function: the initial constant from `origin` on, then one for each milestone.

        The milestones count from `origin`. After a warm-up, the caller passes the start of the warm-up as `origin`.
        """
        starts = (0, *self.milestones)
        if self.values is not None:
            for start, value in zip(starts, self.values, strict=True):
                yield origin + start, _held(value)
            return
        number, gamma = self._fraction("initial"), fraction(cast(float, self.gamma))
        for times, start in enumerate(starts):
            yield origin + start, level(number, gamma, times)


@dataclass(frozen=True, eq=False)
class Cosine(SequenceKind):
    """Half a cosine period from `initial` to `eta_min`, then back to `initial`, repeatedly (CosineAnnealingLR).

    Attributes:
        initial: The value at the beginning; None: the target of the preceding warm-up.
        t_max: The number of units of half a period, 1 or more.
        eta_min: The value at the end of the first half period.
    """

    initial: float | None = None
    t_max: int = NEEDED
    eta_min: float = 0.0
    kind: ClassVar[str] = "cosine"
    inherits: ClassVar[str | None] = "initial"

    def __post_init__(self) -> None:
        """Raise SequenceError unless the fields are valid."""
        self._numbers("initial", "eta_min")
        self._counts("t_max")

    def spans(self, origin: int) -> Iterator[tuple[int, Function]]:
        """Yield one pair of a start position and a function: the cosine function, in force from `origin` on."""
        top, low = self._fraction("initial"), fraction(self.eta_min)
        yield origin, wave(origin, (top + low) / 2, (top - low) / 2, Fraction(1, self.t_max))


@dataclass(frozen=True, eq=False)
class CosineWarmRestarts(SequenceKind):
    """Half a cosine period from `initial` to `eta_min`, restarted with a growing period (CosineAnnealingWarmRestarts).

    Attributes:
        initial: The value at the beginning and after each restart; None: the target of the preceding warm-up.
        t_0: The number of units until the first restart, 1 or more.
        t_mult: The factor by which the number of units grows with each restart, 1 or more.
        eta_min: The value that is approached before each restart.
    """

    initial: float | None = None
    t_0: int = NEEDED
    t_mult: int = 1
    eta_min: float = 0.0
    kind: ClassVar[str] = "cosine_warm_restarts"
    inherits: ClassVar[str | None] = "initial"

    def __post_init__(self) -> None:
        """Raise SequenceError unless the fields are valid."""
        self._numbers("initial", "eta_min")
        self._counts("t_0", "t_mult")

    def spans(self, origin: int) -> Iterator[tuple[int, Function]]:
        """Yield pairs of a start position and a function: a cosine function from `origin` on and from each restart, without end."""
        top, low = self._fraction("initial"), fraction(self.eta_min)
        length = self.t_0
        while True:
            yield origin, wave(origin, (top + low) / 2, (top - low) / 2, Fraction(1, length))
            origin += length
            length *= self.t_mult


@dataclass(frozen=True, eq=False)
class Cyclic(SequenceKind):
    """A value that increases linearly from `base` to `max` and decreases again, repeatedly (CyclicLR).

    Attributes:
        base: The value at the beginning of each cycle.
        max: The highest value of the first cycle.
        step_size_up: The number of units of the increase, 1 or more.
        step_size_down: The number of units of the decrease, 1 or more; None: the same as `step_size_up`.
        mode: `triangular`: all cycles are equal. `triangular2`: the height of each cycle is half of the previous one.
            `exp_range`: the height is multiplied by `gamma` at every unit.
        gamma: The factor per unit, greater than 0; only with the mode `exp_range`, otherwise None.
    """

    base: float
    max: float
    step_size_up: int = NEEDED
    step_size_down: int | None = None
    mode: Literal["triangular", "triangular2", "exp_range"] = "triangular"
    gamma: float | None = None
    kind: ClassVar[str] = "cyclic"

    def __post_init__(self) -> None:
        """Raise SequenceError unless the fields are valid."""
        self._numbers("base", "max")
        self._counts("step_size_up")
        if self.step_size_down is not None:
            self._counts("step_size_down")
        allowed = ("triangular", "triangular2", "exp_range")
        if self.mode not in allowed:
            raise error(self, "mode", f"needs one of {', '.join(allowed)}, found {show(self.mode)}")
        if (self.gamma is not None) != (self.mode == "exp_range"):
            raise error(
                self, "gamma", f"goes with the mode exp_range, found the mode {self.mode} and {show(self.gamma)}"
            )
        if self.gamma is not None:
            self._numbers("gamma", positive=True)

    def spans(self, origin: int) -> Iterator[tuple[int, Function]]:
        """Yield pairs of a start position and a function: an increasing and a decreasing one for each cycle, without end.

        The first cycle starts at `origin`.
        """
        base, height = fraction(self.base), fraction(self.max) - fraction(self.base)
        up, down = self.step_size_up, self.step_size_down or self.step_size_up
        gamma = fraction(self.gamma) if self.gamma is not None else Fraction(1)
        begin = 0
        while True:
            # Express each ramp relative to the origin, so that all ramps have the same powers of gamma.
            rise, fall = height / up, -height / down
            yield origin + begin, power(origin, base, -rise * begin, rise, gamma)
            end = begin + up + down
            yield origin + begin + up, power(origin, base, -fall * end, fall, gamma)
            begin = end
            if self.mode == "triangular2":
                height /= 2


@dataclass(frozen=True, eq=False)
class Polynomial(SequenceKind):
    """A polynomial change, then a constant: end + (initial - end) * (1 - k / total_iters)^power, then `end` (PolynomialLR).

    k is the number of units since the beginning. In PolynomialLR of PyTorch, the end is always 0.

    Attributes:
        initial: The value at the beginning; None: the target of the preceding warm-up.
        total_iters: The number of units of the change, 1 or more.
        power: The exponent, greater than 0.
        end: The value after `total_iters` units.
    """

    initial: float | None = None
    total_iters: int = NEEDED
    power: float = 1.0
    end: float = 0.0
    kind: ClassVar[str] = "polynomial"
    inherits: ClassVar[str | None] = "initial"

    def __post_init__(self) -> None:
        """Raise SequenceError unless the fields are valid."""
        self._numbers("initial", "end")
        self._numbers("power", positive=True)
        self._counts("total_iters")

    def spans(self, origin: int) -> Iterator[tuple[int, Function]]:
        """Yield pairs of a start position and a function: the polynomial function from `origin` on, then the constant `end`."""
        end, last = origin + self.total_iters, fraction(self.end)
        yield origin, root(end, self.total_iters, last, self._fraction("initial") - last, fraction(self.power))
        yield end, LinearFunction(last)


@dataclass(frozen=True, eq=False)
class Piecewise(SequenceKind):
    """Linear interpolation between points. The value is constant before the first point and after the last one.

    Attributes:
        points: Pairs of position (0 or more) and value, with ascending positions, at least one pair.
    """

    points: tuple[tuple[int, float], ...]
    kind: ClassVar[str] = "piecewise"

    def __post_init__(self) -> None:
        """Raise SequenceError unless the points are valid."""
        found: Any = self.points
        pairs = isinstance(found, list | tuple) and all(isinstance(p, list | tuple) and len(p) == 2 for p in found)
        if not (pairs and found and all(is_count(at + 1) and is_number(v) for at, v in found if isinstance(at, int))):
            raise error(self, "points", f"needs a list of [position, value], found {show(found)}")
        places = [at for at, _ in found]
        whole = all(isinstance(at, int) and not isinstance(at, bool) for at in places)
        if not whole or any(a >= b for a, b in itertools.pairwise(places)):
            raise error(self, "points", f"needs whole positions, each above the one before, found {show(places)}")
        object.__setattr__(self, "points", tuple((at, value) for at, value in found))

    def spans(self, origin: int) -> Iterator[tuple[int, Function]]:
        """Yield pairs of a start position and a function: a linear one for each pair of adjacent points, then a constant.

        Positions of points count from `origin`. A constant precedes the first point if its position is above 0.
        """
        exact = [(at, fraction(value)) for at, value in self.points]
        if exact[0][0] > 0:
            yield origin, LinearFunction(exact[0][1])
        for (at, value), (after, following) in itertools.pairwise(exact):
            yield origin + at, LinearFunction.through(origin + at, value, (following - value) / (after - at))
        yield origin + exact[-1][0], LinearFunction(exact[-1][1])


def _held(value: JsonValue) -> Function:
    return LinearFunction(fraction(cast(float, value))) if is_number(value) else Fixed(value)
