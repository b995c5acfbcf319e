"""What every learning-curve predictor promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from hopyard._common import plugins
from hopyard.errors import InvalidInput

LEVELS: Final = tuple((step + 0.5) / 100 for step in range(100))
"""The levels of `Prediction.final`: 0.005, 0.015, .. 0.995."""


class PredictorParameterError(InvalidInput):
    """A predictor was given a parameter it does not take, or a value it cannot use; the message lists what it takes."""


class NotPredictableError(InvalidInput):
    """There is nothing to predict from, such as a curve without one finite value; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Curve:
    """What a job has reported of the experiment's metric.

    Attributes:
        positions: Where, in the experiment's unit; rising, > 0.
        values: The metric there; NaN and infinities are legal.
        hyperparameters: The job's configuration.
        ended: The job trains no further.
    """

    positions: tuple[int, ...]
    values: tuple[float, ...]
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """One curve to extrapolate.

    Attributes:
        curve: It, so far.
        horizon: The last position of interest: where the job would be complete.
        mode: Whether larger (max) or smaller (min) values are better.
        target: The value whose chance is asked for; None: no chances.
        low: The smallest value that the metric can have (r_min of HyperDrive's equation 4); None: not known.
        high: The largest one (r_max); None: not known.
        others: Curves of other jobs of this experiment, running or ended, in the order of their creation. Only predictors
            whose `reads` is "curves" are given any.
        seed: Chance's; 0 <= seed < 2^63.
        earlier: Curves of earlier experiments on the same space, which reported the same metric. What was trained may have been
            another all the same, so that they need not fit. Likewise.
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
    """What becomes of a curve, in the metric's own scale and direction.

    Attributes:
        positions: Future ones, rising, the last one the question's horizon; where the job would report (the spacing of its
            reports so far goes on). Empty when the curve is at its horizon.
        mean: The expected value at each.
        deviation: The standard deviation of what is expected there (HyperDrive's prediction accuracy PA: over samples of the
            model, without the noise of a single report), >= 0.
        reaches: P(a report there is at least as good as the target), in [0, 1], noise included; empty without a target.
        final: The distribution of the report at the horizon, noise included: its quantiles at `LEVELS`, not falling; empty
            when the curve is at its horizon.
    """

    positions: tuple[int, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    reaches: tuple[float, ...] = ()
    final: tuple[float, ...] = ()


class Predictor(ABC):
    """Extrapolates learning curves.

    A predictor is **deterministic**: the same question, its seed included, has the same answer; it reads no clock, no file,
    no network and no other source of chance, and remembers nothing that changes an answer. It may cache what it has computed.

    It runs beside training, on the node that trains the job, in a process of low priority, so it uses one thread.

    Ship one as an entry point in the group `hopyard.predictors`, or name it as `module:Class` in the experiment file
    (docs/predictors.md). Test it with `hopyard.predictor.conformance.PredictorConformance`.
    """

    reads: ClassVar[Literal["nothing", "curves"]] = "nothing"
    """Whether it wants the other jobs' curves (`Question.others` and `Question.earlier`)."""

    def __init__(self, **parameters: Any) -> None:
        """Takes further fields under `predictor:` in the experiment file, which a subclass declares as keywords.

        Raises:
            PredictorParameterError: A parameter that the class does not declare.
        """
        if parameters:
            wrong = plugins.wrong_parameters(parameters, parameter_names(type(self)))
            raise PredictorParameterError(f"{type(self).__name__} {wrong}")

    @abstractmethod
    def predict(self, question: Question) -> Prediction:
        """Extrapolates a curve from its first point on.

        Reports that are not finite are left out, and are not worse than others because of that. A question never changes.

        Raises:
            NotPredictableError: The curve has no finite value.
        """


def parameter_names(predictor: type[Predictor]) -> list[str]:
    """The names of the parameters that `predictor` and its bases declare, sorted."""
    return plugins.parameter_names(predictor)
