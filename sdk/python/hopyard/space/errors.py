"""Errors in a space: a `ParameterError` for one parameter, and a `SpaceError` for all of them together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hopyard.errors import InvalidInput


class ParameterError(InvalidInput):
    """The bounds, values or options of one parameter are wrong. The message names the value found and the allowed values."""

    path: tuple[str | int, ...] = ()
    """Location within the parameter's written form, if known."""


class Problem(NamedTuple):
    """One mistake in a structured document, with its location."""

    path: tuple[str | int, ...]
    """Keys and indices from the root of the document to the wrong part."""

    message: str
    """What was found and what is allowed, without the location."""


class SpaceError(InvalidInput):
    """A space is not usable. The error contains all problems, not only the first.

    Attributes:
        problems: The problems in document order. Paths start at the parameter's name.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        """Store `problems` (at least one). The error text has one line per problem."""
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{field_name(('space', *p.path))}: {p.message}" for p in self.problems))


class ConstraintsError(InvalidInput):
    """Almost no configuration fits the constraints of a space. The message says how many were tried and how many fit."""


def field_name(path: Sequence[str | int]) -> str:
    """Return a path in readable form, such as `space.lr.choice[2]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
