"""Where the walkers begin: each family fitted by itself, the ones that cannot be are left out."""

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
"""L-BFGS-B calls LAPACK for matrices of a few numbers, which many threads make a hundred times slower."""


def started(x: Floats, values: Floats, horizon: float) -> tuple[Posterior, Floats] | None:
    """The posterior of a curve and the theta that its walkers begin around; None when no family fits.

    Args:
        x: Where the reports are, rising, >= 1.
        values: What they say, about 0..1, better upward.
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
    """A family's parameters by weighted least squares; None when that fails, or the prior excludes them.

    Levenberg and Marquardt's method as in MINPACK; where it fails, or reports are fewer than parameters, L-BFGS-B.
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
