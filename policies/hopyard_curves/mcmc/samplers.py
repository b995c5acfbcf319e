"""Ensemble samplers with the affine-invariant stretch move of Goodman and Weare."""

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
    """Return initial walkers near theta, at least as many as the move requires."""
    count = max(walkers, 2 * theta.size)
    return np.asarray(theta + NEARBY * chance.standard_normal((count, theta.size)))


def stretch(
    about: Posterior, start: Floats, steps: int, burn_in: int, thin: int, chance: np.random.Generator
) -> Floats:
    """Sample with our own compiled ensemble.

    Every step splits the walkers randomly into halves; one half moves along lines to walkers of the other, then the
    other half moves.
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
    """Sample the same density with the package emcee, half of the walkers at a time."""
    emcee = need("emcee", "emcee")
    sampler = emcee.EnsembleSampler(*start.shape, log_densities, args=(about,), vectorize=True)
    sampler.random_state = np.random.RandomState(chance.integers(2**32, size=4)).get_state()
    # A walker and its proposal may both be outside the support: inf - inf.
    with np.errstate(invalid="ignore"):
        sampler.run_mcmc(start, steps, skip_initial_state_check=True)
    chain: Floats = sampler.get_chain()
    return chain[burn_in + thin - 1 :: thin].reshape(-1, start.shape[1])


SAMPLERS: Final[dict[str, Sampler]] = {"stretch": stretch, "emcee": ensemble}
