"""What can be wrong with a space: a `ParameterError` for one parameter, a `SpaceError` for all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hopyard.errors import InvalidInput


class ParameterError(InvalidInput):
    """One parameter's bounds, values or options are wrong; the message says what was found and what is allowed."""

    path: tuple[str | int, ...] = ()
    """Where in its written form, if that is known more closely."""


class Problem(NamedTuple):
    """One thing that is wrong in a structured document, and where."""

    path: tuple[str | int, ...]
    """Keys and indices from the document's root to the offending part."""

    message: str
    """What was found and what is allowed, without the place."""


class SpaceError(InvalidInput):
    """A space that cannot be used; carries every problem found, not only the first.

    Attributes:
        problems: the problems in document order; paths start at the parameter's name.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        """Hold `problems` (at least one); the text has one line for each."""
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{field_name(('space', *p.path))}: {p.message}" for p in self.problems))


class ConstraintsError(InvalidInput):
    """Hardly any configuration fits the constraints of a space; the message says how many of how many were found to."""


def field_name(path: Sequence[str | int]) -> str:
    """A path as people write it: `space.lr.choice[2]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
