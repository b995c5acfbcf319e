"""Initial positions of walkers: each family is fitted alone; families that cannot be fitted are left out."""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.optimize import fmin_l_bfgs_b, leastsq
from threadpoolctl import ThreadpoolController

from hopyard_curves.mcmc.families import FAMILIES
from hopyard_curves.mcmc.numba_kernels import Floats, Posterior, add, cost, plausible, residuals
from hopyard_curves.mcmc.posterior import posterior

_CONVERGED: Final = (1, 2, 3, 4)
_WEIGHT: Final = 10.0
_THREADS: Final = ThreadpoolController()
"""Limits threads: L-BFGS-B calls LAPACK for tiny matrices, which many threads make a hundred times slower."""


def started(x: Floats, values: Floats, horizon: float) -> tuple[Posterior, Floats] | None:
    """Return the posterior of a curve and the theta around which its walkers start; None if no family fits.

    Args:
        x: Abscissae of the reports, ascending, >= 1.
        values: The reports, about 0..1, larger is better.
        horizon: The last abscissa of interest, beyond x.
    """
    every = posterior(x, values, horizon, list(range(len(FAMILIES))))
    fits = {family: found for family in range(len(FAMILIES)) if (found := fit(family, every)) is not None}
    if not fits:
        return None
    about = posterior(x, values, horizon, list(fits))
    mean = np.zeros(values.size)
    for family, parameters in fits.items():
        add(family, parameters, about.at, 1 / len(fits), mean)
    sigma = np.std(values - mean)
    return about, np.concatenate([*fits.values(), [sigma], np.full(len(fits), _WEIGHT)])


def fit(family: int, about: Posterior) -> Floats | None:
    """Fit a family by weighted least squares; None if that fails or the prior excludes the result.

    Uses Levenberg-Marquardt (MINPACK); if it fails, or there are fewer reports than parameters, L-BFGS-B.
    """
    given = np.array(list(FAMILIES[family].start.values()))
    with np.errstate(all="ignore"):
        found = _marquardt(family, given, about) if about.values.size >= given.size else None
        if found is None:
            found = _quasi_newton(family, given, about)
    if found is None or not plausible(family, found, about.ends, np.empty(2)):
        return None
    return found


def _marquardt(family: int, given: Floats, about: Posterior) -> Floats | None:
    arguments = (family, about.at, about.values, np.sqrt(about.weights))
    found, _, rest, _, status = leastsq(residuals, given, args=arguments, full_output=True)
    return found if status in _CONVERGED and not np.isnan(rest["fvec"]).any() and not np.isnan(found).any() else None


def _quasi_newton(family: int, given: Floats, about: Posterior) -> Floats | None:
    arguments = (family, about.at, about.values, np.sqrt(about.weights))
    with _THREADS.limit(limits=1):
        found, least, rest = fmin_l_bfgs_b(cost, given, args=arguments)
    return np.asarray(found) if rest["warnflag"] == 0 and not np.isnan(least) and not np.isnan(found).any() else None
