"""Validation of the arguments of an evaluation, before a request is sent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from hopyard.errors import InvalidInput
from hopyard.space import Space
from hopyard.study.batches import TrainingRequest, taken
from hopyard.study.spec_builder import request_of

_MOST: Final = 2**31 - 1


def wish_of(space: Space, configuration: Any, position: Any, request: Any) -> TrainingRequest:
    """Validate the arguments of an evaluation, and return its request for training.

    Args:
        space: The search space of the experiment.
        configuration: A value for each name of the space.
        position: The position up to which the configuration is to be trained, at least 1.
        request: The key of the request that the caller chose; empty: derive it from configuration and position.

    Raises:
        InvalidInput: The configuration is not in the space, the position is not an integer in the allowed range, or
            the key is not text.
    """
    if not isinstance(configuration, Mapping):
        raise InvalidInput(f"configuration: needs a value for each name of the space, found {configuration!r:.80}")
    given, position = taken(configuration), taken(position)
    if problems := space.problems(given):
        raise InvalidInput("\n".join(f"configuration: {problem}" for problem in problems))
    if type(position) is not int or not 1 <= position <= _MOST:
        raise InvalidInput(f"position: must be a whole number in 1..max_iterations, found {position!r:.80}")
    if not isinstance(request, str):
        raise InvalidInput(f"request_id: must be text, found {request!r:.80}")
    return TrainingRequest(given, position, request or request_of(given, position), named=bool(request))


def need_seconds(timeout: Any) -> None:
    """Raise an error unless `timeout` is a number of seconds, or None for no limit. Any number is allowed, also 0 or infinity.

    Raises:
        InvalidInput: `timeout` is not None and not an int or float, or it is a bool or NaN.
    """
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool) and not math.isnan(timeout)
    if timeout is not None and not number:
        raise InvalidInput(f"timeout: must be a number of seconds, or None, found {timeout!r:.80}")
