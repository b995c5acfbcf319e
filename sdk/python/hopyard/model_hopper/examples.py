"""Counts and selects the examples in data of the forms that `input_fn` may return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


def count(data: Any) -> int | None:
    """Return the number of examples in data, or None if it is unknown.

    It is the length of an array, a tensor, a data frame or a list of examples. Of a tuple, a dict, or a list whose elements all have
    lengths (one element for each field of the examples), it is the common length of the elements; None if they differ.
    """
    parts: Sequence[Any] = [data]
    if isinstance(data, Mapping):
        parts = list(data.values())
    elif isinstance(data, tuple) or _of_parts(data):
        parts = data
    lengths = {len(part) if hasattr(part, "__len__") else None for part in parts}
    return lengths.pop() if len(lengths) == 1 else None


def some(data: Any, which: slice | np.ndarray) -> Any:
    """Return the selected examples of `data`, in the same form and in the order of `which`; a copy or a view.

    Args:
        data: An array, a tensor, a data frame, a list of examples, or a tuple, list or dict of these with one common length.
        which: A slice, or the indices of the examples.

    Raises:
        TypeError: `data` has another form.
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
    """Return whether `data` counts as a list of fields (arrays or sequences with one entry per example), not as a list of examples.

    It does if it is a list and each element has a length and is not a text or bytes.
    """
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
    """Return whether `part` is an array or a tensor, which accepts a slice and an array of indices alike."""
    return hasattr(part, "shape") and hasattr(part, "__getitem__")
