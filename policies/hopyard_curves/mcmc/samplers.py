"""Ensemble samplers of the posterior with the affine-invariant stretch move of Goodman and Weare (2010).

An ensemble is a set of walkers; each walker is one parameter vector theta (`hopyard_curves.mcmc.posterior`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from hopyard._common.optional_import import need
from hopyard_curves.mcmc.numba_kernels import Floats, Posterior, log_densities, walk

Sampler = Callable[[Posterior, Floats, int, int, int, np.random.Generator], Floats]
"""(posterior, initial walkers, steps, burn-in, thinning, random generator) -> kept thetas, one in each row, step by step."""

NEARBY: Final = 1e-6


def around(theta: Floats, walkers: int, chance: np.random.Generator) -> Floats:
    """Return initial walkers near `theta`, one in each row.

    Args:
        theta: The parameter vector near which the walkers start.
        walkers: The number of walkers; twice the size of theta if that is larger, because the stretch move requires it.
        chance: The random generator.
    """
    count = max(walkers, 2 * theta.size)
    return np.asarray(theta + NEARBY * chance.standard_normal((count, theta.size)))


def stretch(
    about: Posterior, start: Floats, steps: int, burn_in: int, thin: int, chance: np.random.Generator
) -> Floats:
    """Sample the posterior with the compiled sampler (`numba_kernels.walk`).

    Every step splits the walkers randomly into halves. The first half moves along lines to random walkers of the second
    half, then the second half moves in the same manner.

    Args:
        about: The posterior density.
        start: The initial walkers, one in each row.
        steps: Number of steps, including `burn_in`.
        burn_in: Number of initial steps that are discarded.
        thin: Of the steps after `burn_in`, every `thin`-th one is kept.
        chance: The random generator.

    Returns:
        The walkers of the kept steps, one theta in each row, step by step.
    """
    walkers = start.shape[0]
    order = chance.permuted(np.tile(np.arange(walkers), (steps, 1)), axis=1)
    chances = chance.random((3, steps, walkers))
    kept = np.empty(((steps - burn_in) // thin, *start.shape))
    walk(about, start.copy(), order, chances, burn_in, thin, kept)
    return kept.reshape(-1, start.shape[1])


def ensemble(
    about: Posterior, start: Floats, steps: int, burn_in: int, thin: int, chance: np.random.Generator
) -> Floats:
    """Sample the posterior with the package emcee; arguments and result are those of `stretch`.

    Raises:
        Unsupported: The package is not installed.
    """
    emcee = need("emcee", "emcee")
    sampler = emcee.EnsembleSampler(*start.shape, log_densities, args=(about,), vectorize=True)
    sampler.random_state = np.random.RandomState(chance.integers(2**32, size=4)).get_state()
    # A walker and its proposal may both be outside the support: inf - inf.
    with np.errstate(invalid="ignore"):
        sampler.run_mcmc(start, steps, skip_initial_state_check=True)
    chain: Floats = sampler.get_chain()
    return chain[burn_in + thin - 1 :: thin].reshape(-1, start.shape[1])


SAMPLERS: Final[dict[str, Sampler]] = {"stretch": stretch, "emcee": ensemble}
