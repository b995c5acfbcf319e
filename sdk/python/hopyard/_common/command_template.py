"""Replaces hyperparameter placeholders in command arguments: "{lr}" by the job's value, "{{" and "}}" by braces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

_PART: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)(\})?")


class PlaceholderError(ValueError):
    """Raised if a placeholder is invalid; the message says what was found and what is allowed."""


def filled(arguments: Sequence[str], values: Mapping[str, Any]) -> list[str]:
    """Return the arguments of a command with the placeholders replaced by a job's values.

    Strings are inserted unchanged, other values as JSON: 0.001, 32, true, [1, 2]. A dotted name, such as
    `optimizer.lr`, refers to an entry of a value that is a mapping. An argument other than the first is omitted if it names a
    hyperparameter that the job lacks (because of a `when` condition in the space).

    Raises:
        PlaceholderError: A brace is not closed, the job lacks a hyperparameter of the first argument, or a value contains
            NUL.
    """
    flat = dict(_flat(values))
    put: list[str] = []
    for index, argument in enumerate(arguments):
        names = [_name(found) for found in _PART.finditer(argument)]
        missing = [name for name in names if name is not None and name not in flat]
        if missing and index == 0:
            raise PlaceholderError(f"the program itself needs {{{missing[0]}}}, which this job does not have")
        if not missing:
            for name in names:
                if name is not None and "\0" in flat[name]:
                    raise PlaceholderError(f"{name} is {flat[name]!r}; allowed in an argument: text without NUL")
            put.append(_PART.sub(lambda found: found[0][0] if found[1] is None else flat[found[1]], argument))
    return put


def problems(arguments: Sequence[str], names: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the invalid placeholders of a command: index of the argument, and a text with what was found and what is allowed.

    Args:
        arguments: The command's arguments.
        names: The names that placeholders may use.
    """
    known = list(names)
    for index, argument in enumerate(arguments):
        for found in _PART.finditer(argument):
            if found[1] is not None:
                try:
                    _check(found, known)
                except PlaceholderError as error:
                    yield index, str(error)


def unused(arguments: Sequence[str], names: Iterable[str]) -> list[str]:
    """Return those of the names that no placeholder uses; an empty list if the command has no placeholders.

    A program without placeholders gets its values in another way, for example from its environment.

    Args:
        arguments: The command's arguments.
        names: Names of hyperparameters.
    """
    used = {found[1] for argument in arguments for found in _PART.finditer(argument) if found[1] is not None}
    return [name for name in names if name not in used] if used else []


def _check(found: re.Match[str], known: Iterable[str]) -> None:
    name = _name(found)
    if name is not None and name not in known:
        raise PlaceholderError(
            f"found {found[0]}; allowed: the space's names in braces ({', '.join(known)}), and {{{{ and }}}} for braces"
        )


def _name(found: re.Match[str]) -> str | None:
    """Return the name in the braces of `found`, a match of a placeholder or an escaped brace; None if it is an escaped brace.

    Raises:
        PlaceholderError: The brace is not closed.
    """
    if found[1] is None:
        return None
    if found[2] is None:
        raise PlaceholderError(f"needs a }} behind {found[0]}; write {{{{ for a brace")
    return found[1]


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the dotted name, which begins with `prefix`, and the argument text of each value.

    A value that is a mapping is yielded as JSON, followed by its entries.
    """
    for name, value in values.items():
        yield prefix + name, value if isinstance(value, str) else json.dumps(value)
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
