"""The real learning curves: which of them are evaluated, and which a predictor may learn from.

Each curve is one row of a set; all curves of a set have the same length.
"""

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
"""Sets whose values are accuracies, known to be from 0 to 1. Only the chosen rows are evaluated."""
RETURNS: Final = ("td3_HalfCheetah", "td3_Hopper")
"""Sets whose values are rewards without a known range. They are small, so each curve is predicted from all others of its set."""
TRAINING: Final = range(300)
"""Rows of an accuracy set from which histories are drawn, without the evaluated rows. Later rows are for final reports only."""
HISTORY: Final = 10
EARLIER: Final = 100
"""Number of finished curves of an earlier experiment, with the option `--earlier`."""
PERCENTILE: Final = 80.0


@dataclass(frozen=True)
class CurveSet:
    """A set of learning curves of the same length, with what is needed to score predictions of them.

    Attributes:
        name: Name of the set in the file.
        values: One row per curve; values[:, i] was reported at position i + 1.
        scored: Rows to predict.
        target: The target of the predictions: the 80th percentile of `finals`, interpolated linearly.
        finals: The final values of the evaluated rows.
        pool: Rows from which histories are drawn; None: the history of a row is all other rows.
        low: Smallest possible value; None: unknown.
        high: Largest possible value; None: unknown.
        strange: Curves of another set, stretched to the length of this one, to test predictors with unsuitable history; None: there are
            none.
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
        """Number of reports of each curve, which is also its last position."""
        return int(self.values.shape[1])

    def points(self, part: float) -> int:
        """Return the number of reports in the first `part` (0 to 1) of a curve, at least 1."""
        return max(1, round(part * self.length))

    def curve(self, row: int, points: int | None = None) -> Curve:
        """Return the first `points` reports of a row as an unfinished run; None: the whole row as a finished run."""
        shown = self.values[row, :points]
        return finished(shown) if points is None else replace(finished(shown), ended=False)

    def histories(
        self, draws: int, size: int = HISTORY, earlier: Literal["fitting", "strange"] | None = None
    ) -> Iterator[tuple[tuple[Curve, ...] | None, tuple[Curve, ...]]]:
        """Yield pairs (history, curves of an earlier experiment), from which each row is predicted.

        They are the same in every run and for every predictor.

        Args:
            draws: Number of pairs to yield.
            size: Number of curves in a history.
            earlier: "fitting": also yield `EARLIER` other curves of this set. "strange": `EARLIER` curves of another set. None: no such
                curves.

        Yields:
            The pairs. If this set has no `pool`, there is one pair (None, ()), which means that the history is all other rows.
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
        """Return all rows except `row`, as finished runs."""
        return tuple(self.curve(other) for other in range(len(self.values)) if other != row)


def finished(values: npt.NDArray[np.float64]) -> Curve:
    """Return a finished run that reported `values` at the positions 1, 2, ..."""
    return Curve(tuple(range(1, len(values) + 1)), tuple(values.tolist()), ended=True)


def curve_sets(file: Path, rows: range, every: int = 1) -> list[CurveSet]:
    """Return the sets of curves in a file, ready to be scored.

    Args:
        file: NumPy archive with an array for each name in ACCURACY and RETURNS.
        rows: Evaluated rows of the accuracy sets.
        every: Predict only every `every`-th of these rows, for slow predictors. The target is still computed from all of them.

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
