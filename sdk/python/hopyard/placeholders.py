"""Hyperparameters in the arguments of a command: "{lr}" stands for the job's value, "{{" and "}}" for braces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

_PART: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)(\})?")


class PlaceholderError(ValueError):
    """A placeholder names nothing that has a value; the message says what it found and what is allowed."""


def filled(arguments: Sequence[str], values: Mapping[str, Any]) -> list[str]:
    """Put a job's values into the arguments of its command.

    Text stands as it is; everything else as JSON writes it: 0.001, 32, true, [1, 2].

    Raises:
        PlaceholderError: A placeholder's name has no value in this job, or a brace is not closed.
    """

    def put(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0][0]
        _check(found, values)
        value = values[found[1]]
        return value if isinstance(value, str) else json.dumps(value)

    return [_PART.sub(put, argument) for argument in arguments]


def problems(arguments: Sequence[str], names: Iterable[str]) -> Iterator[tuple[int, str]]:
    """What is wrong with the placeholders of a command: the argument's place in it, and what was found and is allowed."""
    known = list(names)
    for index, argument in enumerate(arguments):
        for found in _PART.finditer(argument):
            if found[1] is not None:
                try:
                    _check(found, known)
                except PlaceholderError as error:
                    yield index, str(error)


def _check(found: re.Match[str], known: Iterable[str]) -> None:
    names = ", ".join(known)
    if found[2] is None:
        raise PlaceholderError(f"needs a }} behind {found[0]}; write {{{{ for a brace")
    if found[1] not in known:
        raise PlaceholderError(
            f"found {found[0]}; allowed: the space's names in braces ({names}), and {{{{ and }}}} for braces"
        )
