"""A canonical form of an experiment's state, to compare a restored state with the original."""

from __future__ import annotations

import dataclasses
import enum
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from hopyard_engine.core.state.channel import RunChannel
from hopyard_engine.core.state.stream import Stream

# Acknowledgements of commands are not events: after a recovery all commands are sent again.
_NOT_JOURNALLED = {RunChannel: {"acknowledged", "unacknowledged"}, Stream: {"effects"}}


def picture(value: Any, seen: dict[int, int] | None = None) -> Any:
    """Return a value as plain tuples; repeated objects become references, so that identity is compared too."""
    seen = {} if seen is None else seen
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, enum.Enum):
        return str(value)
    if isinstance(value, Mapping):
        return ("map", *((str(k), picture(v, seen)) for k, v in value.items()))
    if isinstance(value, set | frozenset):
        return ("set", *sorted(str(v) for v in value))
    if isinstance(value, list | tuple | deque):
        return tuple(picture(v, seen) for v in value)
    parameters = getattr(type(value), "__dataclass_params__", None)
    frozen = parameters is not None and parameters.frozen
    if not frozen:
        if id(value) in seen:
            return ("ref", seen[id(value)])
        seen[id(value)] = len(seen)
    skipped = _NOT_JOURNALLED.get(type(value), set())
    return (type(value).__name__, *((n, picture(v, seen)) for n, v in _fields(value) if n not in skipped))


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield field.name, getattr(value, field.name)
    else:
        yield from sorted(vars(value).items())


def difference(a: Any, b: Any, path: str = "") -> str | None:
    """Return the first difference of two pictures with its path, or None if they are equal."""
    if a == b:
        return None
    if not isinstance(a, tuple) or not isinstance(b, tuple) or len(a) != len(b):
        return f"{path}: {a!r} != {b!r}"
    named = len(a) > 0 and isinstance(a[0], str)
    for index, (left, right) in enumerate(zip(a, b, strict=True)):
        label = left[0] if isinstance(left, tuple) and left and isinstance(left[0], str) and named else str(index)
        found = difference(left, right, f"{path}/{label}")
        if found is not None:
            return found
    return None


def compare(lived: Stream, restored: Stream) -> None:
    """Raise AssertionError with the first difference unless the two streams are equal."""
    found = difference(picture(lived), picture(restored))
    if found is not None:
        raise AssertionError(f"recovery differs (lived != restored) at {found}")
