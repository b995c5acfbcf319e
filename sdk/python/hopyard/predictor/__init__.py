"""Learning-curve predictors: the base class of predictor plugins, and the types of questions and predictions."""

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
