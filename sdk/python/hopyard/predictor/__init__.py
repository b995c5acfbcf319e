"""Learning-curve predictors: the base class that plugins derive from, a question and its answer."""

from hopyard.predictor.base import (
    LEVELS,
    Curve,
    NotPredictableError,
    Prediction,
    Predictor,
    PredictorParameterError,
    Question,
    parameter_names,
)

__all__ = [
    "LEVELS",
    "Curve",
    "NotPredictableError",
    "Prediction",
    "Predictor",
    "PredictorParameterError",
    "Question",
    "parameter_names",
]
