"""The kinds of parameters and the parser of their written forms (the forms in an experiment file).

To add a kind, write a `Parameter` subclass and add it to `_ALL`. Parsing, errors, spaces and generators then support
it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import cast

from hopyard.space.continuous import LogUniform, Uniform
from hopyard.space.discrete import Choice, Constant
from hopyard.space.errors import ParameterError
from hopyard.space.integers import IntUniform, LogInt
from hopyard.space.parameter import Parameter
from hopyard.space.sequence_parameter import Sequences
from hopyard.space.values import JsonValue, show

_ALL: tuple[type[Parameter], ...] = (Uniform, LogUniform, IntUniform, LogInt, Choice, Constant, Sequences)

KINDS: Mapping[str, type[Parameter]] = {kind.kind: kind for kind in _ALL}
"""All kinds, by the key of their written form."""


def parameter_from_data(data: object) -> Parameter:
    """Create one parameter from its written form: `{kind: ..., option: ...}`, or a scalar, which is a constant.

    Raises:
        ParameterError: The kind or an option is unknown, a value is invalid, or `data` is a list. The message lists
            what is allowed.
    """
    if isinstance(data, list | tuple):
        raise ParameterError(
            f"a bare list is ambiguous: write {{choice: ...}} or {{constant: ...}}, found {show(data)}"
        )
    if not isinstance(data, Mapping):
        return Constant(cast(JsonValue, data))
    kinds = [key for key in data if key in KINDS]
    if len(kinds) > 1:
        raise ParameterError(f"a parameter has one kind, found {', '.join(kinds)}")
    if not kinds:
        raise ParameterError(_unknown_kind(data))
    kind = KINDS[kinds[0]]
    options = {str(key): value for key, value in data.items() if key != kind.kind}
    for option in options:
        if option not in kind.options:
            allowed = f"allowed options: {', '.join(kind.options)}" if kind.options else "it takes none"
            raise ParameterError(
                f"{kind.kind} has no option {show(option)}{did_you_mean(option, kind.options)}; {allowed}"
            )
    return kind.from_data(data[kind.kind], options)


def did_you_mean(found: str, allowed: Iterable[str]) -> str:
    """Return ` (did you mean X?)`, where X is the word in `allowed` most similar to `found`; empty text if none is similar."""
    words = list(allowed)
    inside = [word for word in words if word.endswith(f".{found}")]  # A name without its group.
    near = inside or difflib.get_close_matches(found, words, n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def _unknown_kind(data: Mapping[object, object]) -> str:
    allowed = f"allowed kinds: {', '.join(KINDS)}; a group of parameters has space"
    everyone = {option for kind in KINDS.values() for option in kind.options}
    words = [str(key) for key in data if key not in everyone]
    if not words:
        return f"needs a kind, found {show(dict(data))}; {allowed}"
    return f"unknown kind {words[0]}{did_you_mean(words[0], KINDS)}; {allowed}"
