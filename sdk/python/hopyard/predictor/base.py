"""The base class of learning-curve predictors, and the types of questions and predictions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from hopyard._common import plugins
from hopyard.errors import InvalidInput

LEVELS: Final = tuple((step + 0.5) / 100 for step in range(100))
"""The levels of the quantiles in `Prediction.final`: 0.005, 0.015, .. 0.995."""


class PredictorParameterError(InvalidInput):
    """A predictor got an unknown parameter or an invalid value. The message lists what is allowed."""


class NotPredictableError(InvalidInput):
    """A prediction is impossible, for example because the curve has no finite value. The message says what is missing."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The learning curve of a job: its reports of the experiment's metric.

    Attributes:
        positions: The positions of the reports in the experiment's unit; ascending, > 0.
        values: The metric at each position. NaN and infinite values are allowed.
        hyperparameters: The job's configuration.
        ended: Whether the job has ended, so that the curve is complete.
    """

    positions: tuple[int, ...]
    values: tuple[float, ...]
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """The input of a predictor: one curve to extrapolate, and what is known about the metric.

    Attributes:
        curve: The curve so far.
        horizon: The last position to predict, where the job would be complete.
        mode: Whether larger (max) or smaller (min) values are better.
        target: The prediction must contain the probabilities that the metric is at least as good as this value; None: no probabilities.
        low: The smallest possible value of the metric (r_min in HyperDrive's equation 4); None: not known.
        high: The largest possible value (r_max); None: not known.
        others: Curves of other jobs of this experiment, running or ended, in the order of their creation. Only
            predictors whose `reads` is "curves" get them.
        seed: Seed of the predictor's random numbers; 0 <= seed < 2^63.
        earlier: Curves of earlier experiments with the same space and metric; like `others`, only if `reads` is
            "curves". Their training may have been different, so their values may not be comparable.
    """

    curve: Curve
    horizon: int
    mode: Literal["max", "min"] = "max"
    target: float | None = None
    low: float | None = None
    high: float | None = None
    others: tuple[Curve, ...] = ()
    seed: int = 0
    earlier: tuple[Curve, ...] = ()


@dataclass(frozen=True, slots=True)
class Prediction:
    """The answer of a predictor: the expected continuation of a curve, as values of the metric.

    Attributes:
        positions: Future positions at which the job would report, ascending, with the spacing of its reports so far.
            The last one is the question's horizon. Empty if the curve has reached its horizon.
        mean: The expected value at each position.
        deviation: The standard deviation of the expected value at each position, >= 0: the uncertainty of the curve
            without the noise of a single report (HyperDrive's prediction accuracy PA).
        reaches: The probability that the report at each position is at least as good as the target, in [0, 1],
            including noise; empty without a target.
        final: The distribution of the report at the horizon, including noise: its 100 quantiles at the levels 0.005,
            0.015, ..., 0.995 (`LEVELS`), in ascending order. Empty if the curve has reached its horizon.
    """

    positions: tuple[int, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    reaches: tuple[float, ...] = ()
    final: tuple[float, ...] = ()


class Predictor(ABC):
    """Base class of predictors: plugins that extrapolate learning curves.

    A predictor must be **deterministic**: the same question, including its seed, must have the same answer. It must not
    use a clock, files, the network, or other random numbers, and must not store anything that changes an answer. It may
    cache its results. It runs in a process with low priority on the node that trains the job, and uses one thread.

    Publish a predictor as an entry point in the group `hopyard.predictors`, or name it as `module:Class` in the
    experiment file (docs/predictors.md). Test it with `hopyard.predictor.conformance.PredictorConformance`.

    A subclass declares its parameters as keywords of `__init__` and passes all others to `super().__init__`.

    Args:
        **parameters: The fields of `predictor:` in the experiment file except `name`, `time_limit`, `memory` and `earlier`; JSON
            values. The base class accepts none.

    Attributes:
        reads: Whether questions contain the curves of other jobs (`Question.others`, `Question.earlier`): "curves", or
            "nothing".

    Raises:
        PredictorParameterError: The class does not declare a parameter.
    """

    reads: ClassVar[Literal["nothing", "curves"]] = "nothing"
    """Whether it needs the curves of other jobs (`Question.others` and `Question.earlier`)."""

    def __init__(self, **parameters: Any) -> None:
        if parameters:
            wrong = plugins.wrong_parameters(parameters, parameter_names(type(self)))
            raise PredictorParameterError(f"{type(self).__name__} {wrong}")

    @abstractmethod
    def predict(self, question: Question) -> Prediction:
        """Extrapolate the question's curve. It may have any number of reports, at least one of them finite.

        Reports that are not finite must be ignored; they are not worse than others. The question must not be modified.

        Raises:
            NotPredictableError: The curve has no finite value.
        """


def parameter_names(predictor: type[Predictor]) -> list[str]:
    """Return the sorted names of the parameters that the class `predictor` and its base classes declare."""
    return plugins.parameter_names(predictor)
