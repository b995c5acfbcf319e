"""Finds sequences in a space whose values exceed the range of a double before the training is complete."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Final, cast

from hopyard.sequences import Sequence, SequenceError, is_written, read
from hopyard.space import Choice, Constant, Parameter, Problem, Sequences, Space

_SPANS: Final = 2000
"""Maximum number of spans to examine. Reading a file must not take as long as its training."""

_ENDS: Final = 16
"""Number of spans at whose ends values are computed, in addition to the last one."""


def overflow_problems(space: Space, stop: int) -> Iterator[Problem]:
    """Yield a problem for each parameter that has a sequence whose values exceed the range of a double.

    Parameters inside a sequence are tested at both ends of their ranges. Sequences that count optimizer steps are not
    tested, because the number of steps is not known.

    Args:
        space: The space.
        stop: The position at which the training is complete.
    """
    for name, parameter in space.items():
        for sequence in map(read, _written(parameter)):
            at = None if sequence.per_step else _beyond(sequence, stop)
            if at is not None:
                place = ("space", *f".{name}".replace(".", ".space.").split(".")[2:])
                reason = f"{sequence} is beyond what a double can hold at position {at}, before max_iterations, {stop}"
                yield Problem(place, f"{reason}; narrow its parameters, or let it grow more slowly")
                break


def _written(parameter: Parameter) -> Iterable[dict[str, Any]]:
    if isinstance(parameter, Sequences):
        return cast("Iterable[dict[str, Any]]", parameter.ends())
    values = parameter.values if isinstance(parameter, Choice) else ()
    values = (parameter.value,) if isinstance(parameter, Constant) else values
    return [cast("dict[str, Any]", value) for value in values if is_written(value)]


def _beyond(sequence: Sequence, stop: int) -> int | None:
    """Return a position before `stop` at which the sequence's value is too large for a double, or None if none was found.

    Only some positions are tested, because a sequence can have very many spans (ranges of positions with one formula).
    """
    spans = list(itertools.islice(itertools.takewhile(lambda span: span[0] < stop, sequence.spans(0)), _SPANS))
    ends = [start - 1 for start, _ in spans[1:]]
    last = stop - 1 if len(spans) < _SPANS else ends.pop()
    for at in (*ends[:_ENDS], last):
        try:
            sequence.value(at)
        except SequenceError:
            return at
    return None
