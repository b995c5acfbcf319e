"""All compiled code of the model: compiled at first use, cached on disk.

It is one file because Numba recompiles a function when its file changes, but does not notice changes in other files
that it calls or takes constants from.

Every power is an exponential of a product with ln x, which is computed once. A NaN (a power or logarithm of a negative
number) is an ordinary value here; the posterior excludes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar, cast

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
HIGHEST: Final = 100.0
STRETCH: Final = 2.0
_HALF_LOG_TWO_PI: Final = 0.9189385332046727


def compiled(function: _Function) -> _Function:
    """Compile a function with NumPy's floating-point rules: a division by zero is not an error.

    The machine code is cached on disk if Numba finds a writable folder.
    """
    try:
        return cast(_Function, numba.njit(cache=True, error_model="numpy")(function))
    except RuntimeError:
        # No cache folder: each process compiles for itself.
        return cast(_Function, numba.njit(error_model="numpy")(function))


def abscissae(x: ArrayLike) -> Floats:
    """Return what the families need of each x > 0: rows x, ln x, 1/x and 1/ln(x + 1)."""
    given = np.asarray(x, dtype=np.float64)
    return np.stack([given, np.log(given), 1 / given, 1 / np.log(given + 1)])


@compiled
def add(family: int, p: Floats, at: Floats, share: float, total: Floats) -> None:
    """Add to `total`, for every abscissa, `share` times the value of a family.

    Args:
        family: Index into `FAMILIES`.
        p: The family's parameters, in order.
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
    """Return factors * (f - values), for the fit of one family."""
    found = np.zeros(values.size)
    add(family, p, at, 1.0, found)
    for i in range(values.size):
        found[i] = factors[i] * (found[i] - values[i])
    return found


@compiled
def cost(p: Floats, family: int, at: Floats, values: Floats, factors: Floats) -> tuple[float, Floats]:
    """Return the sum of squared `residuals` and its gradient by forward differences of `STEP`."""
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


class Posterior(NamedTuple):
    """A curve and the families kept for it.

    Attributes:
        kept: K indices into `FAMILIES`, ascending.
        offsets: Start of each kept family's parameters in theta, and their end: K + 1 values.
        at: `abscissae` of the n reports.
        values: The n reports.
        weights: The weight of each report.
        ends: `abscissae` of 2 (of the horizon if that is smaller) and of the horizon.
    """

    kept: Indices
    offsets: Indices
    at: Floats
    values: Floats
    weights: Floats
    ends: Floats


@compiled
def plausible(family: int, p: Floats, ends: Floats, found: Floats) -> bool:
    """Return whether priors 2 and 3 hold for a family; `found` is a buffer for two values."""
    found[:] = 0.0
    add(family, p, ends, 1.0, found)
    return 0.0 <= found[1] <= HIGHEST and not found[0] > found[1]


@compiled
def log_density(theta: Floats, about: Posterior, curve: Floats) -> float:
    """Return the log posterior density up to a constant; -inf if it is zero or not a number.

    Cheap checks come first.

    Args:
        theta: The parameters.
        about: The curve and the families.
        curve: A buffer for n values, at least two.
    """
    families = about.kept.size
    end = about.offsets[families]
    sigma, weights = theta[end], theta[end + 1 :]
    total = 0.0
    for k in range(families):
        if not weights[k] >= 0:
            return -np.inf
        total += weights[k]
    if not (sigma > 0 and total > 0):
        return -np.inf
    for k in range(families):
        if not plausible(about.kept[k], theta[about.offsets[k] : about.offsets[k + 1]], about.ends, curve[:2]):
            return -np.inf
    curve[:] = 0.0
    for k in range(families):
        p = theta[about.offsets[k] : about.offsets[k + 1]]
        add(about.kept[k], p, about.at, weights[k] / total, curve)
    noise = np.log(sigma) + _HALF_LOG_TWO_PI
    found = 0.0
    for i in range(about.values.size):
        distance = (about.values[i] - curve[i]) / sigma
        found -= about.weights[i] * (0.5 * distance * distance + noise)
    return -np.inf if np.isnan(found) else found


@compiled
def log_densities(thetas: Floats, about: Posterior) -> Floats:
    """Return `log_density` of each row."""
    found = np.empty(thetas.shape[0])
    curve = np.empty(max(2, about.values.size))
    for row in range(found.size):
        found[row] = log_density(thetas[row], about, curve)
    return found


@compiled
def curves(thetas: Floats, about: Posterior, at: Floats) -> Floats:
    """Return the expected curve of each row of parameters at the `abscissae` of m points: m values in each row."""
    families = about.kept.size
    end = about.offsets[families]
    found = np.zeros((thetas.shape[0], at.shape[1]))
    for row in range(found.shape[0]):
        theta = thetas[row]
        total = theta[end + 1 :].sum()
        for k in range(families):
            p = theta[about.offsets[k] : about.offsets[k + 1]]
            add(about.kept[k], p, at, theta[end + 1 + k] / total, found[row])
    return found


@compiled
def walk(
    about: Posterior, walkers: Floats, order: Indices, chances: Floats, burn_in: int, thin: int, kept: Floats
) -> None:
    """Perform the stretch moves of all walkers.

    Args:
        about: The density.
        walkers: W rows; modified.
        order: The walkers of each step in random order; the first half moves before the second.
        chances: Uniform in [0, 1): for each step and walker, the random numbers of partner, stretch and acceptance.
        burn_in: Number of initial steps that are discarded.
        thin: Every `thin`-th later step is kept.
        kept: A buffer for the walkers of each kept step.
    """
    count, dimension = walkers.shape
    half = count // 2
    curve = np.empty(max(2, about.values.size))
    proposal = np.empty(dimension)
    densities = log_densities(walkers, about)
    root = np.sqrt(STRETCH)
    for step in range(order.shape[0]):
        for place in range(count):
            mover = order[step, place]
            first, others = (half, count - half) if place < half else (0, half)
            partner = order[step, first + int(chances[0, step, place] * others)]
            # Density proportional to z^(-1/2) on [1/a, a].
            z = (1 / root + chances[1, step, place] * (root - 1 / root)) ** 2
            for i in range(dimension):
                proposal[i] = walkers[partner, i] + z * (walkers[mover, i] - walkers[partner, i])
            density = log_density(proposal, about, curve)
            if (dimension - 1) * np.log(z) + density - densities[mover] > np.log(chances[2, step, place]):
                densities[mover] = density
                for i in range(dimension):
                    walkers[mover, i] = proposal[i]
        done = step + 1 - burn_in
        if done > 0 and done % thin == 0:
            for place in range(count):
                for i in range(dimension):
                    kept[done // thin - 1, place, i] = walkers[place, i]
