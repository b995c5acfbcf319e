"""Plain JSON values, which are the values of hyperparameters, and their canonical text.

Hyperparameters are passed between processes, languages and databases. Therefore only JSON values are allowed: None,
bool, finite numbers (integers must fit in 64 bits), text, lists, and mappings with text keys.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TypeAlias

JsonValue: TypeAlias = bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"] | None
"""A value that JSON can represent. NaN and infinite values are not JSON and are rejected on input."""

Configuration: TypeAlias = dict[str, JsonValue]
"""One point of a space: a value for each parameter name."""

_LONGEST_SHOWN = 80


def is_number(value: object) -> bool:
    """Return whether `value` is a finite int or float. Unlike in Python, a bool is not a number here."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # An int outside the range of a float is still a finite number.
        return True


def json_problem(value: object) -> str | None:
    """Return why `value` is not a JSON value, or None if it is one. An int must fit in 64 bits with its sign.

    The sentence names the wrong part, for example `nan is not finite` or `a set is not a JSON value`.
    """
    if value is None or isinstance(value, bool | str):
        return None
    if isinstance(value, int):
        return None if -(2**63) <= value < 2**63 else f"{value} does not fit in 64 bits"
    if isinstance(value, float):
        return None if is_number(value) else f"{value!r} is not finite"
    if isinstance(value, list):
        return next((problem for item in value if (problem := json_problem(item))), None)
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                return f"the key {key!r} is not text"
            if problem := json_problem(item):
                return problem
        return None
    return f"a {type(value).__name__} is not a JSON value"


def canonical_json(value: object) -> str:
    """Return the canonical text of a JSON value. Equal values have equal texts, on every host.

    Keys are sorted, and there is no whitespace. Equal numbers have the same text: 1, 1.0 and 1e0 are all `1`. This is
    necessary because a protobuf Struct has only doubles, so an int can come back as a float.

    Raises:
        ValueError: `value` is not a JSON value.
    """
    if problem := json_problem(value):
        raise ValueError(f"canonical JSON needs a JSON value, but {problem}")
    return json.dumps(_by_value(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _by_value(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_by_value(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _by_value(item) for key, item in value.items()}
    return value


def show(value: object) -> str:
    """Return `value` as text for an error message: as JSON if possible, else its `repr`, shortened to 80 characters."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."
