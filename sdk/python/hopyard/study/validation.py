"""What a caller asks for, looked at before it goes anywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from hopyard.errors import InvalidInput
from hopyard.space import Space
from hopyard.study.batches import Wish, taken
from hopyard.study.spec_builder import request_of

_MOST: Final = 2**31 - 1


def wish_of(space: Space, configuration: Any, position: Any, request: Any) -> Wish:
    """The request that an evaluation makes.

    Raises:
        InvalidInput: It does not lie in the space, or there is no such position or name.
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
    return Wish(given, position, request or request_of(given, position), named=bool(request))


def need_seconds(timeout: Any) -> None:
    """Looks at how long somebody would wait.

    Raises:
        InvalidInput: It is neither a number nor None.
    """
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool) and not math.isnan(timeout)
    if timeout is not None and not number:
        raise InvalidInput(f"timeout: must be a number of seconds, or None, found {timeout!r:.80}")
