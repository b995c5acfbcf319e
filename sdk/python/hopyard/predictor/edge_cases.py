"""Unusual inputs for tests of predictors: curves that are short, broken or enormous, and curves of other experiments."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from hopyard.predictor.base import Curve, Question
from hopyard.predictor.testing import FAMILIES, CurveFamily, curve


def _with(changes: Mapping[int, float], seen: int = 24) -> Question:
    """Return a question about a rising accuracy at the positions 1, 2, ..., in which some reports are replaced.

    Args:
        changes: The new values by the index of the report, from 0.
        seen: Number of reports.
    """
    values = FAMILIES[0].curves(1, seed=11)[0][:seen]
    return Question(curve([changes.get(at, value) for at, value in enumerate(values)]), 60)


def _of(values: list[float], horizon: int = 60, every: int = 1) -> Question:
    return Question(curve(values, every), horizon)


_PLAIN: Final = _with({}).curve.values

CURVES: Final[Mapping[str, Question]] = {
    "one report": _of([0.3]),
    "one report at 7": Question(Curve((7,), (2.5,)), 60),
    "one report of zero": _of([0.0]),
    "two reports": _of([0.3, 0.4]),
    "four reports": _of([0.1, 0.3, 0.4, 0.45]),
    "four equal reports": _of([0.5] * 4),
    "constant": _of([0.1] * 20),
    "constant zero": _of([0.0] * 20),
    "some NaN": _with(dict.fromkeys((0, 3, 4, 11), math.nan)),
    "NaN at the end": _with(dict.fromkeys((21, 22, 23), math.nan)),
    "one finite among NaN": _with(dict.fromkeys((*range(7), *range(8, 24)), math.nan)),
    "infinities": _with({2: math.inf, 9: -math.inf, 23: math.inf}),
    "one spike": _with({12: 40.0}),
    "many spikes": _with(dict.fromkeys(range(1, 24, 4), -3.0)),
    "a spike at the end": _with({23: 0.0}),
    "crashed to the floor": _with(dict.fromkeys(range(14, 24), 0.1)),
    "a step of the learning rate": _of([0.4 + 0.002 * at + (0.3 if at >= 20 else 0.0) for at in range(24)]),
    "getting worse": _of([0.9 - 0.02 * at for at in range(24)]),
    "diverged": _of([2.0 * 20.0**at for at in range(24)]),
    "two values in turn": _of([0.2, 0.8] * 12),
    "rising in a line": _of([1.0 * at for at in range(24)]),
    "huge": _of([1e12 * value for value in _PLAIN]),
    "tiny": _of([1e-12 * value for value in _PLAIN]),
    "negative": _of([-300 + value for value in _PLAIN]),
    "falling through decades": _of([10 + 1e6 * math.exp(-at / 2) for at in range(24)]),
    "reports five apart": _of(list(_PLAIN[:12]), horizon=203, every=5),
    "irregular positions": Question(Curve((1, 2, 3, 10, 11, 30, 31, 55, 90, 100), _PLAIN[:10]), 1000),
    "one before the horizon": _with({}, seen=59),
    "400 of 500": _of([1 - (at + 2) ** -0.4 for at in range(400)], horizon=500),
}
"""Questions without bounds and target, for maximising."""


def variants(question: Question) -> Iterator[Question]:
    """Yield the question and five copies with other values of `mode`, `low`, `high` and `target`.

    The targets are inside the range of the reports, or beyond it on either side.
    """
    finite = [value for value in question.curve.values if math.isfinite(value)]
    least, most = min(finite), max(finite)
    size = (most - least) or abs(most) or 1.0
    low, high = least - size / 4, most + size / 4
    yield question
    yield replace(question, mode="min")
    yield replace(question, target=(least + most) / 2, low=low, high=high, seed=2**63 - 1)
    yield replace(question, mode="min", target=low, low=low, high=high)
    yield replace(question, mode="min", low=low, target=least - size / 8)
    yield replace(question, high=most, target=most + size)


def _hyperparameters(at: int) -> Mapping[str, Any]:
    return {
        "lr": 10.0 ** -(at % 5),
        "layers": at % 4,
        "kind": "ab"[at % 2],
        "nested": {"on": at % 3 == 0, "sizes": [at, 8]},
    }


def _alike(family: CurveFamily, count: int, running: bool = False) -> tuple[Curve, ...]:
    """Return curves of a family with hyperparameters.

    Args:
        family: The family.
        count: Number of curves.
        running: Whether some of the curves are incomplete, those with odd indices.
    """
    found = list[Curve]()
    for at, values in enumerate(family.curves(count, seed=3)):
        seen = 5 + at % 30 if running and at % 2 else len(values)
        ended = not running or at % 4 != 1
        found.append(replace(curve(values[:seen], ended=ended), hyperparameters=_hyperparameters(at)))
    return tuple(found)


def _broken(family: CurveFamily) -> tuple[Curve, ...]:
    whole = _alike(family, 12)
    nothing = np.full(60, math.nan)
    values = [nothing, nothing[:1], np.full(60, math.inf), np.geomspace(1, 1e30, 60), np.zeros(60), np.full(1, 0.3)]
    late = [replace(one, values=(*one.values[:30], *[math.nan] * 30)) for one in whole[:3]]
    return (Curve((), ()), *(curve(one, ended=True) for one in values), *late, *whole[3:6])


def _foreign(family: CurveFamily) -> tuple[Curve, ...]:
    other = next(one for one in FAMILIES if one is not family)
    elsewhere = [replace(one, positions=tuple(7 * at for at in one.positions)) for one in _alike(family, 4)]
    beyond = curve([float(value) for values in family.curves(5, seed=4) for value in values], ended=True)
    units = [replace(one, values=tuple(1000 * value for value in one.values)) for one in _alike(family, 4)]
    strange = replace(elsewhere[0], hyperparameters={"lr": "auto", "nested": None, "": [], "x": math.nan, "n": 10**30})
    return (*_alike(other, 4), *elsewhere, beyond, *units, strange)


History = tuple[tuple[Curve, ...], Mapping[str, Any]]
"""Other curves, and the hyperparameters of the curve in the question."""

HISTORIES: Final[Mapping[str, Callable[[CurveFamily], History]]] = {
    "one finished": lambda family: (_alike(family, 1), {}),
    "only running": lambda family: (_alike(family, 8, running=True)[1::2], _hyperparameters(3)),
    "finished and running": lambda family: (_alike(family, 40, running=True), _hyperparameters(3)),
    "one curve twenty times": lambda family: (_alike(family, 1) * 20, _hyperparameters(0)),
    "shorter than the question": lambda family: (tuple(curve(one.values[:4]) for one in _alike(family, 8)), {}),
    "broken": lambda family: (_broken(family), _hyperparameters(3)),
    "foreign": lambda family: (_foreign(family), {"lr": True, "layers": "many", "kind": {"a": 1}}),
    "a thousand": lambda family: (_alike(family, 1000, running=True), _hyperparameters(3)),
}
"""Functions that create histories for the family of a question, by name."""
