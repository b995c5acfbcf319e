"""Finds the initial positions of walkers: fits each family of curves to the reports by itself.

A walker is one state (theta) of the ensemble sampler. Families that cannot be fitted are left out of the model.
"""

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
    """Fit the families to a curve, and return where its MCMC walkers start.

    Args:
        x: Abscissae of the reports (positions as a count of reports), ascending, >= 1.
        values: The normalized reports: about 0..1, larger is better.
        horizon: The last abscissa of interest, larger than all of x.

    Returns:
        The posterior of the curve for the families that could be fitted, and the parameter vector theta near which all
        walkers start. None if no family could be fitted.
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
    """Fit one family to a curve by weighted least squares, and return its parameters.

    The method is Levenberg-Marquardt (MINPACK). If that fails, or there are fewer reports than parameters, it is
    L-BFGS-B.

    Args:
        family: Index of the family in `FAMILIES`.
        about: The curve with the weights of its reports.

    Returns:
        The parameters in the family's order. None if both methods fail, or if the model's prior excludes the result.
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
