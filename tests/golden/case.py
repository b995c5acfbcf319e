"""Cases and parts of the record."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_MARK_BYTES: Final = 3
MARK: Final = 4
"""Characters of the short hash of a step: three bytes in base64."""


@dataclass(frozen=True)
class Case:
    """One run of the code: its steps as lines of canonical text.

    Attributes:
        name: Unique within its unit, such as `asha:3`.
        lines: A JSON object for each step, in order.
        kept: Whether the record contains the lines themselves in addition to their hashes.
    """

    name: str
    lines: Sequence[str]
    kept: bool = True

    @property
    def digest(self) -> str:
        """Return the SHA-256 over all lines."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()

    @property
    def chain(self) -> str:
        """Return the short hashes of the lines, `MARK` characters each."""
        return "".join(mark(line) for line in self.lines)


@dataclass(frozen=True)
class Part:
    """A part of the record.

    Attributes:
        name: Its name on the command line.
        about: What it covers, in one line.
        units: Returns the units, which run independently; each has its own file in the record.
        cases: Runs a unit and yields its cases.
    """

    name: str
    about: str
    units: Callable[[], Sequence[str]]
    cases: Callable[[str], Iterator[Case]]


def mark(line: str) -> str:
    """Return the short hash of a line."""
    return base64.b64encode(hashlib.sha256(line.encode()).digest()[:_MARK_BYTES]).decode()
