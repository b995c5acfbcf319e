"""The examples of what `input_fn` returned: how many there are, and some of them, in the same form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


def count(data: Any) -> int | None:
    """How many examples `data` holds; None: it does not show.

    It does in an array, a tensor, a sequence, or a tuple, list or dict of such with one common length.
    """
    parts: Sequence[Any] = [data]
    if isinstance(data, Mapping):
        parts = list(data.values())
    elif isinstance(data, tuple) or _of_parts(data):
        parts = data
    lengths = {len(part) if hasattr(part, "__len__") else None for part in parts}
    return lengths.pop() if len(lengths) == 1 else None


def some(data: Any, which: slice | np.ndarray) -> Any:
    """Some examples of `data`, in the order of `which`: a copy, or a view where that is all the same.

    Args:
        data: An array, a tensor, a data frame, a list of examples, or a tuple, list or dict of such with one common length.
        which: A slice, or the numbers of the examples.

    Raises:
        TypeError: It is something else.
    """
    if isinstance(data, Mapping):
        return {name: _part(part, which) for name, part in data.items()}
    if isinstance(data, tuple):
        parts = [_part(part, which) for part in data]
        return type(data)(*parts) if hasattr(data, "_fields") else tuple(parts)
    if _of_parts(data):
        return [_part(part, which) for part in data]
    return _part(data, which)


def _of_parts(data: Any) -> bool:
    """Whether it is a list of arrays and the like, each with all examples, and not one of examples."""
    return isinstance(data, list) and all(
        hasattr(part, "__len__") and not isinstance(part, str | bytes) for part in data
    )


def _part(part: Any, which: slice | np.ndarray) -> Any:
    if hasattr(part, "iloc"):
        return part.iloc[which]
    if _sliced(part):
        return part[which]
    if isinstance(part, list):
        return part[which] if isinstance(which, slice) else [part[number] for number in which]
    raise TypeError(
        f"the examples of a {type(part).__qualname__} cannot be taken apart; allowed: arrays, tensors, data frames, lists of "
        "examples, and tuples, lists and dicts of them"
    )


def _sliced(part: Any) -> bool:
    """Whether it is an array or a tensor, which numbers of examples and slices are taken from alike."""
    return hasattr(part, "shape") and hasattr(part, "__getitem__")
