"""All compiled code of the model `mcmc`. Numba compiles it at first use and caches the machine code on disk.

It is one file because Numba recompiles a function when its file changes, but does not notice changes in other files
that the function calls or takes constants from.

Every power is computed as the exponential of a product with ln x, and ln x is computed once for each point. A NaN (a
power or logarithm of a negative number) is not an error here; the posterior density of such parameters is zero.

`hopyard_curves.mcmc.posterior` describes the model and its parameter vector theta.
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
    """Compile a function with Numba and return the compiled function; a division by zero gives inf or NaN as in NumPy.

    The machine code is cached on disk if Numba finds a writable folder.
    """
    try:
        return cast(_Function, numba.njit(cache=True, error_model="numpy")(function))
    except RuntimeError:
        # No cache folder: each process compiles for itself.
        return cast(_Function, numba.njit(error_model="numpy")(function))


def abscissae(x: ArrayLike) -> Floats:
    """Return the functions of x that the curve families use, computed once: rows x, ln x, 1/x and 1/ln(x + 1).

    Args:
        x: Positive numbers, one for each column of the result.
    """
    given = np.asarray(x, dtype=np.float64)
    return np.stack([given, np.log(given), 1 / given, 1 / np.log(given + 1)])


@compiled
def add(family: int, p: Floats, at: Floats, share: float, total: Floats) -> None:
    """Add `share` times the value of a curve family at each of n points to `total`.

    Args:
        family: Index of the family in `FAMILIES`.
        p: The family's parameters, in its order.
        at: The result of `abscissae` for the n points.
        share: Factor of the family's values.
        total: The n sums; modified.
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
    """Return factors * (f - values) for the curve f of one family: the residuals that `initial_walkers.fit` minimizes.

    Args:
        p: The family's parameters, in its order.
        family: Index of the family in `FAMILIES`.
        at: The result of `abscissae` for the n reports.
        values: The n reports.
        factors: The n factors, the square roots of the weights of the reports.
    """
    found = np.zeros(values.size)
    add(family, p, at, 1.0, found)
    for i in range(values.size):
        found[i] = factors[i] * (found[i] - values[i])
    return found


@compiled
def cost(p: Floats, family: int, at: Floats, values: Floats, factors: Floats) -> tuple[float, Floats]:
    """Return the sum of the squared `residuals` and its gradient by `p`, from forward differences with step `STEP`.

    The arguments are those of `residuals`.
    """
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
    """The posterior density of the model for one curve: the reports, and the families that are kept in the model.

    Attributes:
        kept: Indices of the K kept families in `FAMILIES`, ascending.
        offsets: K + 1 indices into theta: where each kept family's parameters start, and where the last one's end.
        at: The result of `abscissae` for the n reports.
        values: The n normalized reports (0 worst, 1 best).
        weights: The weight of each report in the likelihood.
        ends: The result of `abscissae` for two points: 2 (or the horizon if that is smaller), and the horizon.
    """

    kept: Indices
    offsets: Indices
    at: Floats
    values: Floats
    weights: Floats
    ends: Floats


@compiled
def plausible(family: int, p: Floats, ends: Floats, found: Floats) -> bool:
    """Return whether the prior allows a family's parameters.

    At the horizon, the curve must be in [0, 100] and not lower than at x = 2 (`hopyard_curves.mcmc.posterior`, conditions 2 and 3).

    Args:
        family: Index of the family in `FAMILIES`.
        p: The family's parameters, in its order.
        ends: `Posterior.ends`.
        found: A buffer for two values; overwritten with the curve's values at the points of `ends`.
    """
    found[:] = 0.0
    add(family, p, ends, 1.0, found)
    return 0.0 <= found[1] <= HIGHEST and not found[0] > found[1]


@compiled
def log_density(theta: Floats, about: Posterior, curve: Floats) -> float:
    """Return the log posterior density of `theta` up to a constant; -inf if the density is zero or not a number.

    Args:
        theta: The model's parameters (`hopyard_curves.mcmc.posterior`).
        about: The curve and the kept families.
        curve: A buffer for n values, n the number of reports, but at least two; overwritten.
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
    """Return the log posterior density of each row of `thetas` up to a constant; see `log_density`.

    Args:
        thetas: Parameter vectors of the model, one in each row.
        about: The curve and the kept families.
    """
    found = np.empty(thetas.shape[0])
    curve = np.empty(max(2, about.values.size))
    for row in range(found.size):
        found[row] = log_density(thetas[row], about, curve)
    return found


@compiled
def curves(thetas: Floats, about: Posterior, at: Floats) -> Floats:
    """Return the expected curve of each theta at given points.

    Args:
        thetas: Parameter vectors of the model, one in each row.
        about: The curve and the kept families.
        at: The result of `abscissae` for m points.

    Returns:
        One row of m normalized values for each row of `thetas`.
    """
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
    """Run the ensemble sampler: perform the stretch moves (Goodman and Weare) of all W walkers, and store samples in `kept`.

    A walker is one parameter vector theta.

    Args:
        about: The posterior density to sample.
        walkers: W rows, the initial thetas; overwritten with those after the last step.
        order: For each step, the indices of the walkers in random order; the first half moves before the second.
        chances: Random numbers, uniform in [0, 1), of shape (3, steps, W): for partner, stretch and acceptance of each
            move.
        burn_in: Number of initial steps whose samples are not stored.
        thin: After these, the walkers are stored after every `thin`-th step.
        kept: The result: the walkers after each stored step; shape (stored steps, W, size of theta).
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
