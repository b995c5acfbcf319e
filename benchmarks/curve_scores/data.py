"""Real curves, which of them are evaluated, and the runs that a predictor may learn from."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from hopyard.predictor import Curve

ACCURACY: Final = ("metaqnn_cifar10", "deep_resnets_cifar10", "alexnet_imagenet")
"""Sets whose values are accuracies: scored by the chosen rows, with `low` 0 and `high` 1 known."""
RETURNS: Final = ("td3_HalfCheetah", "td3_Hopper")
"""Sets of rewards, in no known range: too few curves to hold some out, so each is predicted from all others of its set."""
TRAINING: Final = range(300)
"""Rows of an accuracy set that a history is drawn from, less those that are evaluated. Later rows are for reporting only."""
HISTORY: Final = 10
EARLIER: Final = 100
"""Finished rows of an earlier experiment, where some are wanted."""
PERCENTILE: Final = 80.0


@dataclass(frozen=True)
class CurveSet:
    """One set of curves with the same length.

    Attributes:
        name: Its name in the file.
        values: A row a curve; values[:, i] was reported at position i + 1.
        scored: The rows to predict.
        target: The 80th percentile of the final values of the evaluated rows (interpolated linearly).
        finals: Those final values.
        pool: Rows that histories are drawn from; None: a row's history is all the others.
        low: Smallest possible value, where known.
        high: Largest one.
        strange: Rows of another set as if they were of this one, their positions stretched to its length; None: there are none.
    """

    name: str
    values: npt.NDArray[np.float64]
    scored: tuple[int, ...]
    target: float
    finals: tuple[float, ...]
    pool: tuple[int, ...] | None
    low: float | None
    high: float | None
    strange: npt.NDArray[np.float64] | None = None

    @property
    def length(self) -> int:
        """The horizon: the last position."""
        return int(self.values.shape[1])

    def points(self, part: float) -> int:
        """How many reports a part (0 to 1) of the curve is; at least one."""
        return max(1, round(part * self.length))

    def curve(self, row: int, points: int | None = None) -> Curve:
        """The first `points` reports of a row; without a number the finished run."""
        shown = self.values[row, :points]
        return finished(shown) if points is None else replace(finished(shown), ended=False)

    def histories(
        self, draws: int, size: int = HISTORY, earlier: Literal["fitting", "strange"] | None = None
    ) -> Iterator[tuple[tuple[Curve, ...] | None, tuple[Curve, ...]]]:
        """The histories that each row is predicted with, and rows of an earlier experiment: `EARLIER` of this set, or of another.

        Histories are the same in every run and for every predictor. None: the history is all other rows.
        """
        if self.pool is None:
            yield None, ()
            return
        for draw in range(draws):
            chance = random.Random(zlib.crc32(f"{self.name} {draw}".encode()))
            history = chance.sample(self.pool, size)
            before: tuple[Curve, ...] = ()
            if earlier == "fitting":
                left = [row for row in self.pool if row not in history]
                before = tuple(self.curve(row) for row in chance.sample(left, EARLIER))
            elif earlier == "strange":
                assert self.strange is not None
                before = tuple(finished(self.strange[row]) for row in chance.sample(self.pool, EARLIER))
            yield tuple(self.curve(row) for row in history), before

    def others(self, row: int) -> tuple[Curve, ...]:
        """All other rows, finished."""
        return tuple(self.curve(other) for other in range(len(self.values)) if other != row)


def finished(values: npt.NDArray[np.float64]) -> Curve:
    """A run that reported these at 1, 2, .. and ended."""
    return Curve(tuple(range(1, len(values) + 1)), tuple(values.tolist()), ended=True)


def curve_sets(file: Path, rows: range, every: int = 1) -> list[CurveSet]:
    """The sets of a file, ready to be scored.

    Args:
        file: NumPy archive with the arrays ACCURACY and RETURNS.
        rows: Evaluated rows of the accuracy sets.
        every: Only every so manieth of them is predicted (slow predictors); the target remains that of all.

    Raises:
        ValueError: The file lacks a set, or a set lacks rows.
    """
    with np.load(file) as stored:
        if missing := [name for name in (*ACCURACY, *RETURNS) if name not in stored]:
            raise ValueError(f"{file} has no array {', '.join(missing)}; it has: {', '.join(stored) or 'none'}")
        arrays = {name: np.asarray(stored[name], dtype=np.float64) for name in (*ACCURACY, *RETURNS)}
    sets = []
    for name in ACCURACY:
        count = len(arrays[name])
        if not rows or rows[-1] >= count:
            raise ValueError(
                f"rows {rows.start} to {rows.stop - 1} are asked for, and {name} has rows 0 to {count - 1}"
            )
        pool = tuple(row for row in TRAINING if row not in rows)
        if len(pool) < HISTORY:
            raise ValueError(
                f"{len(pool)} rows of {len(TRAINING)} are left to learn from, and {HISTORY} are drawn: ask for fewer rows"
            )
        other = arrays[ACCURACY[(ACCURACY.index(name) + 1) % len(ACCURACY)]]
        one = _set(name, arrays[name], rows, rows[::every], pool, 0.0, 1.0)
        sets.append(replace(one, strange=_stretched(other, one.length)))
    for name in RETURNS:
        every_row = range(len(arrays[name]))
        sets.append(_set(name, arrays[name], every_row, every_row, None, None, None))
    return sets


def _stretched(values: npt.NDArray[np.float64], length: int) -> npt.NDArray[np.float64]:
    at = np.linspace(0, values.shape[1] - 1, length)
    return np.stack([np.interp(at, np.arange(values.shape[1]), row) for row in values])


def _set(
    name: str,
    values: npt.NDArray[np.float64],
    rows: Sequence[int],
    scored: Sequence[int],
    pool: tuple[int, ...] | None,
    low: float | None,
    high: float | None,
) -> CurveSet:
    finals = values[list(rows), -1]
    target = float(np.percentile(finals, PERCENTILE))
    return CurveSet(name, values, tuple(scored), target, tuple(finals.tolist()), pool, low, high)
