"""Creates predictors from their names and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hopyard._common.plugins import PREDICTORS, load_plugin, unknown_parameters
from hopyard.errors import InvalidInput
from hopyard.predictor.base import Predictor, PredictorParameterError, parameter_names


def new_predictor(name: str, parameters: Mapping[str, Any]) -> Predictor:
    """Create a predictor.

    Args:
        name: A name of the entry-point group `hopyard.predictors`, or `module:Class`.
        parameters: The keyword arguments of the predictor's constructor.

    Raises:
        InvalidInput: There is no such predictor, it rejects the parameters, or its constructor failed. The message
            lists the existing names if the name is unknown, and the allowed parameters if one is rejected.
    """
    cls = load_plugin(PREDICTORS, name, Predictor)
    assert isinstance(cls, type)
    if wrong := unknown_parameters(cls, parameters):
        raise InvalidInput(f"predictor {name} {wrong}")
    try:
        made = cls(**parameters)
    except PredictorParameterError as error:
        raise InvalidInput(f"predictor {name}: {error}") from error
    except (TypeError, ValueError) as error:
        takes = ", ".join(parameter_names(cls)) or "none"
        raise InvalidInput(f"predictor {name}: {error}; its parameters are: {takes}") from error
    except (Exception, SystemExit) as error:
        raise InvalidInput(f"predictor {name}: could not be made: {type(error).__name__}: {error}") from error
    assert isinstance(made, Predictor)
    return made
