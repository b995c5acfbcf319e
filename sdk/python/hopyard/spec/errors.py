"""What is wrong with an experiment file, told so that it can be mended in one go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hopyard.errors import InvalidInput


@dataclass(frozen=True)
class SpecProblem:
    """One mistake and its place.

    Attributes:
        source: the file, as the user knows it.
        line: counted from 1; None when the specification did not come from text.
        field: `space.lr`; empty for the document as a whole.
        message: what was found and what is allowed.
    """

    source: str
    line: int | None
    field: str
    message: str

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        return f"{place}: {self.field}: {self.message}" if self.field else f"{place}: {self.message}"


class SpecError(InvalidInput):
    """An experiment that cannot be run as written; the text has one line for each mistake, in the file's order.

    Attributes:
        problems: all mistakes found, at least one.
    """

    def __init__(self, problems: Sequence[SpecProblem]) -> None:
        """Hold `problems`, ordered by line."""
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line or 0))
        super().__init__("\n".join(map(str, self.problems)))
