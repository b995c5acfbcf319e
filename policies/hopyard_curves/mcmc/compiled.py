"""Values of the families, compiled to machine code at their first use and kept on disk.

Every power is an exponential of a product with ln x, which is computed once. A NaN (a power or the logarithm of a negative
number) is a value like any other here; the posterior leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

_Function = TypeVar("_Function", bound=Callable[..., Any])

X: Final = 0
LOG: Final = 1
INVERSE: Final = 2
INVERSE_LOG: Final = 3
STEP: Final = 1e-8


def compiled(function: _Function) -> _Function:
    """A function in machine code, with NumPy's floating point: a division by zero is no error.

    It is kept on disk for the next process where a folder for it can be written, as Numba finds one.
    """
    try:
        return cast(_Function, numba.njit(cache=True, error_model="numpy")(function))
    except RuntimeError:
        # No folder: each process compiles for itself.
        return cast(_Function, numba.njit(error_model="numpy")(function))


def abscissae(x: ArrayLike) -> Floats:
    """What the families need of each x > 0: rows x, ln x, 1/x and 1/ln(x + 1)."""
    given = np.asarray(x, dtype=np.float64)
    return np.stack([given, np.log(given), 1 / given, 1 / np.log(given + 1)])


@compiled
def add(family: int, p: Floats, at: Floats, share: float, total: Floats) -> None:
    """Adds to `total`, for every abscissa, `share` times a family's value.

    Args:
        family: Index into `FAMILIES`.
        p: The family's parameters, in their order there.
        at: `abscissae` of n points.
        share: Factor.
        total: n sums.
    """
    n = at.shape[1]
    if family == 0:
        for i in range(n):
            total[i] += share * np.exp(p[0] + p[1] * at[INVERSE, i] + p[2] * at[LOG, i])
    elif family == 1:
        for i in range(n):
            total[i] += share * (p[0] - p[1] * at[INVERSE_LOG, i])
    elif family == 2:
        rate, rise = np.log(p[2]), p[0] - p[1]
        for i in range(n):
            total[i] += share * (p[0] - rise * np.exp(-np.exp(p[3] * (rate + at[LOG, i]))))
    elif family == 3:
        for i in range(n):
            total[i] += share * (p[0] - p[1] * np.exp(-p[2] * at[LOG, i]))
    elif family == 4:
        for i in range(n):
            total[i] += share * (p[0] - np.exp(-p[3] * np.log(p[1] * at[X, i] + p[2])))
    elif family == 5:
        for i in range(n):
            total[i] += share * np.log(p[0] * at[LOG, i] + p[1])
    elif family == 6:
        rate, rise = np.log(p[2]), p[0] - p[1]
        for i in range(n):
            total[i] += share * (p[0] - rise / (1 + np.exp(p[3] * (rate + at[LOG, i]))))
    elif family == 7:
        rise = p[0] - p[1]
        for i in range(n):
            total[i] += share * (p[0] - rise * np.exp(-p[2] * np.exp(p[3] * at[LOG, i])))
    elif family == 8:
        half = np.log(p[2])
        for i in range(n):
            total[i] += share * p[0] / (1 + np.exp(p[1] * (half - at[LOG, i])))
    elif family == 9:
        for i in range(n):
            total[i] += share * p[0] / (1 + np.exp(p[2] * (at[LOG, i] - p[1])))
    else:
        for i in range(n):
            total[i] += share * (p[0] - np.exp(p[2] - p[1] * np.exp(p[3] * at[LOG, i])))


@compiled
def residuals(p: Floats, family: int, at: Floats, values: Floats, factors: Floats) -> Floats:
    """factors * (f - values), for the fit of one family."""
    found = np.zeros(values.size)
    add(family, p, at, 1.0, found)
    for i in range(values.size):
        found[i] = factors[i] * (found[i] - values[i])
    return found


@compiled
def cost(p: Floats, family: int, at: Floats, values: Floats, factors: Floats) -> tuple[float, Floats]:
    """The sum of the squared `residuals`, and its gradient by forward differences of `STEP`."""
    found = _squares(residuals(p, family, at, values, factors))
    gradient, moved = np.empty(p.size), p.copy()
    for i in range(p.size):
        moved[i] = p[i] + STEP
        gradient[i] = (_squares(residuals(moved, family, at, values, factors)) - found) / (moved[i] - p[i])
        moved[i] = p[i]
    return found, gradient


@compiled
def _squares(rest: Floats) -> float:
    total = 0.0
    for i in range(rest.size):
        total += rest[i] * rest[i]
    return total
