"""Calls a predictor and checks its answer; used on nodes and in simulations."""

from __future__ import annotations

import os
import traceback
from typing import Any

from hopyard.errors import InvalidInput
from hopyard.predictor.base import NotPredictableError, Predictor, Question
from hopyard.predictor.wire import check_prediction, prediction_to_wire


def predicted(predictor: Predictor, question: Question) -> dict[str, Any]:
    """Return the predictor's answer to a question as plain data (`hopyard.predictor.wire`), after checking it.

    Raises:
        InvalidInput: A prediction is impossible, the answer is invalid, or the predictor raised an exception. Policies
            get the message.
    """
    name = type(predictor).__name__
    try:
        return prediction_to_wire(check_prediction(predictor.predict(question), question))
    except NotPredictableError:
        raise
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from error
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
        raise InvalidInput(f"{name}: {type(error).__name__}: {error}{place}") from error
