"""Errors in a search space: `ParameterError` for one parameter, and `SpaceError` with all problems of a space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hopyard.errors import InvalidInput


class ParameterError(InvalidInput):
    """The bounds, values or options of one parameter are wrong. The message names the value found and the allowed values.

    Attributes:
        path: Location of the wrong part within the parameter's written form; empty if not known.
    """

    path: tuple[str | int, ...] = ()
    """Location within the parameter's written form, if known."""


class Problem(NamedTuple):
    """One mistake in a structured document such as an experiment file.

    Attributes:
        path: Keys and list indices from the root of the document to the wrong part.
        message: What was found and what is allowed, without the location.
    """

    path: tuple[str | int, ...]
    """Keys and indices from the root of the document to the wrong part."""

    message: str
    """What was found and what is allowed, without the location."""


class SpaceError(InvalidInput):
    """A space is not usable. The error contains all problems, not only the first.

    The error text has one line for each problem, with its location.

    Attributes:
        problems: The problems, at least one, in document order; also the argument of the constructor. The first element of
            each path is the name of a parameter or group, or `constraints`.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{field_name(('space', *p.path))}: {p.message}" for p in self.problems))


class ConstraintsError(InvalidInput):
    """None of a limited number of random configurations of a space fulfils all its constraints.

    The message names the number of configurations that were drawn, and for each constraint how many of them fulfil it.
    """


def field_name(path: Sequence[str | int]) -> str:
    """Return a path of keys and list indices in readable form, such as `space.lr.choice[2]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
