"""The errors of an experiment file. They are collected, so that a user can correct all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hopyard.errors import InvalidInput


@dataclass(frozen=True)
class SpecProblem:
    """One mistake in an experiment file, with its location.

    Attributes:
        source: The name of the file, as the user knows it.
        line: Line number, starting with 1; None if the specification was not read from text.
        field: The dotted name of the field, such as `space.lr`; empty for the whole document.
        message: What was found and what is allowed.
    """

    source: str
    line: int | None
    field: str
    message: str

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        return f"{place}: {self.field}: {self.message}" if self.field else f"{place}: {self.message}"


class SpecError(InvalidInput):
    """An experiment file is not valid. The error text has one line for each mistake, in the order of the file.

    Args:
        problems: The mistakes, at least one, in any order.

    Attributes:
        problems: All mistakes, at least one, ordered by line.
    """

    def __init__(self, problems: Sequence[SpecProblem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line or 0))
        super().__init__("\n".join(map(str, self.problems)))
