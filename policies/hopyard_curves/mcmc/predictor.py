"""The predictor plugin `mcmc`: fits a weighted sum of curve families to a learning curve, samples its posterior, and predicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from hopyard._common.optional_import import need
from hopyard.predictor import Prediction, Predictor, PredictorParameterError, Question
from hopyard_curves.metric_normalization import Scale
from hopyard_curves.reports import abscissae, finite, future

if TYPE_CHECKING:
    from hopyard_curves.mcmc.posterior_predictive import Samples

Floats = NDArray[np.float64]

EXTRA: Final = "curves"
_LEVEL_OF: Final = 5
_BLIND: Final = 0.25
"""Standard deviation, normalized, of a curve that no family fits."""


class McmcPredictor(Predictor):
    """The learning-curve model of HyperDrive and of Domhan et al. (IJCAI 2015), exactly as published.

    The model is a weighted sum of eleven curve families with normal noise. An ensemble of walkers (Markov chains that
    move together) samples its posterior, starting near least-squares fits. `Prediction.reaches` is the published
    "posterior_prob_x_greater_than". The chains have not converged when they end, so the result also depends on the
    number of steps. The model is overconfident on real curves. It is provided as a reference; other predictors are
    faster and better calibrated.

    If no family fits a curve, the prediction is the mean of its last five reports, with a standard deviation of at
    least a quarter of the range between the worst and the best expected value (`Scale`).

    The published settings are 100 walkers and 700 steps (HyperDrive; originally 2,500).

    Args:
        walkers: Minimum number of walkers. At least twice the number of model parameters are used (96 with all
            families).
        steps: Number of steps of each walker, including `burn_in`.
        burn_in: Number of initial steps that are discarded.
        thin: Of the steps after `burn_in`, every `thin`-th one is used.
        sampler: `stretch` (compiled), or `emcee`: the same moves by the package emcee, several times slower.
        **parameters: Not allowed; any other parameter raises `PredictorParameterError`.

    Raises:
        PredictorParameterError: A parameter is unknown, a value is invalid, or no step would be used.
        Unsupported: A package is missing; the message says what to install.
    """

    def __init__(
        self,
        *,
        walkers: int = 100,
        steps: int = 700,
        burn_in: int = 500,
        thin: int = 10,
        sampler: str = "stretch",
        **parameters: Any,
    ) -> None:
        super().__init__(**parameters)
        for name, value, least in (
            ("walkers", walkers, 2),
            ("steps", steps, 1),
            ("burn_in", burn_in, 0),
            ("thin", thin, 1),
        ):
            if type(value) is not int or value < least:
                raise PredictorParameterError(f"mcmc: {name} is a whole number >= {least}, found {value!r}")
        if steps - burn_in < thin:
            raise PredictorParameterError(
                f"mcmc: with steps={steps}, burn_in={burn_in} and thin={thin} no step is used; steps - burn_in must be >= thin"
            )
        for module in ("scipy", "numba", "threadpoolctl"):
            need(module, EXTRA)
        # The import is slow, so it is deferred for programs that only list or check predictors.
        from hopyard_curves.mcmc import samplers

        if sampler not in samplers.SAMPLERS:
            raise PredictorParameterError(f"mcmc: sampler is {' or '.join(samplers.SAMPLERS)}, found {sampler!r}")
        if sampler == "emcee":
            need("emcee", "emcee")
        self._sampler = samplers.SAMPLERS[sampler]
        self._walkers, self._steps, self._burn_in, self._thin = walkers, steps, burn_in, thin

    def predict(self, question: Question) -> Prediction:
        """Extrapolate the question's curve. The same question with the same seed has the same prediction.

        Raises:
            NotPredictableError: The curve has no finite value.
        """
        reports = finite(question.curve)
        scale = Scale.of(question, reports.values)
        positions = future(question.curve, question.horizon)
        if not positions:
            return Prediction((), (), ())
        from hopyard_curves.mcmc.posterior_predictive import chances, last, moments

        x = abscissae(question.curve, reports.positions)
        ahead = abscissae(question.curve, np.array(positions, dtype=np.float64))
        samples = self._samples(x, scale.observed(reports.values), ahead, question.seed)
        mean, deviation = moments(samples, scale)
        final = scale.clipped(scale.from_unit(last(samples)))
        reaches = np.empty(0)
        if question.target is not None:
            reaches = scale.possible(question.target, chances(samples, float(scale.to_unit(question.target))))
        return Prediction(
            positions,
            tuple(mean.tolist()),
            tuple(deviation.tolist()),
            tuple(reaches.tolist()),
            tuple((final if scale.rising else final[::-1]).tolist()),
        )

    def _samples(self, x: Floats, units: Floats, ahead: Floats, seed: int) -> Samples:
        from hopyard_curves.mcmc import initial_walkers, numba_kernels, samplers
        from hopyard_curves.mcmc.posterior_predictive import Samples

        begun = initial_walkers.started(x, units, float(ahead[-1]))
        if begun is not None:
            about, theta = begun
            chance = np.random.default_rng(seed)
            walkers = samplers.around(theta, self._walkers, chance)
            thetas = self._sampler(about, walkers, self._steps, self._burn_in, self._thin, chance)
            found = Samples(
                numba_kernels.curves(thetas, about, numba_kernels.abscissae(ahead)), thetas[:, about.offsets[-1]]
            )
            if found.readable():
                return found
        level, noise = units[-_LEVEL_OF:].mean(), np.hypot(_BLIND, units.std())
        return Samples(np.full((1, ahead.size), level), np.array([noise]))
