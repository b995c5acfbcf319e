"""The ensemble of walkers: the affine-invariant stretch move of Goodman and Weare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from hopyard.extras import need
from hopyard_curves.mcmc.compiled import Floats, Indices, compiled
from hopyard_curves.mcmc.posterior import Posterior, log_densities, log_density

Sampler = Callable[[Posterior, Floats, int, int, int, np.random.Generator], Floats]
"""(posterior, where the walkers begin, steps, burn-in, thinning, chance) -> the kept thetas, one a row, step by step."""

STRETCH: Final = 2.0
NEARBY: Final = 1e-6


def around(theta: Floats, walkers: int, chance: np.random.Generator) -> Floats:
    """Where walkers begin: about theta, as many as the move needs at the least."""
    count = max(walkers, 2 * theta.size)
    return np.asarray(theta + NEARBY * chance.standard_normal((count, theta.size)))


def stretch(
    about: Posterior, start: Floats, steps: int, burn_in: int, thin: int, chance: np.random.Generator
) -> Floats:
    """Our own ensemble, compiled.

    Every step parts the walkers by chance into halves; one half moves along the lines to walkers of the other, then the
    other.
    """
    walkers = start.shape[0]
    order = chance.permuted(np.tile(np.arange(walkers), (steps, 1)), axis=1)
    chances = chance.random((3, steps, walkers))
    kept = np.empty(((steps - burn_in) // thin, *start.shape))
    _walk(about, start.copy(), order, chances, burn_in, thin, kept)
    return kept.reshape(-1, start.shape[1])


@compiled
def _walk(
    about: Posterior, walkers: Floats, order: Indices, chances: Floats, burn_in: int, thin: int, kept: Floats
) -> None:
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


def ensemble(
    about: Posterior, start: Floats, steps: int, burn_in: int, thin: int, chance: np.random.Generator
) -> Floats:
    """The ensemble of the package emcee on the same density, a half of the walkers at a time."""
    emcee = need("emcee", "emcee")
    sampler = emcee.EnsembleSampler(*start.shape, log_densities, args=(about,), vectorize=True)
    sampler.random_state = np.random.RandomState(chance.integers(2**32, size=4)).get_state()
    # A walker outside the support that is proposed another point outside: inf - inf.
    with np.errstate(invalid="ignore"):
        sampler.run_mcmc(start, steps, skip_initial_state_check=True)
    chain: Floats = sampler.get_chain()
    return chain[burn_in + thin - 1 :: thin].reshape(-1, start.shape[1])


SAMPLERS: Final[dict[str, Sampler]] = {"stretch": stretch, "emcee": ensemble}
