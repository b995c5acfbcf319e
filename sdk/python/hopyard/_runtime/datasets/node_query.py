"""Queries about paths on a node, and the answers: the JSON of questions of the kind "inspect"."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

INSPECT: Final = "inspect"
"""Kind of the questions to a node about places on it."""

LOOK_AGAIN: Final = "data"
"""Ticket of an unsolicited answer, which says that the data on the node has changed."""


@dataclass(frozen=True, slots=True)
class PathQuery:
    """A query about one place.

    Attributes:
        place: An absolute path, or a URL whose copy on the node is wanted.
        sha256: Expected hash; required for a URL unless `fetch` is set.
        fetch: Whether to download a URL of which the node has no copy.
    """

    place: str
    sha256: str = ""
    fetch: bool = False


@dataclass(frozen=True, slots=True)
class FoundPath:
    """The answer about one place.

    Attributes:
        size: Size in bytes.
        sha256: Hash of the content; empty with an error.
        examples: Number of examples; None: unknown.
        error: Why the content cannot be read; empty: it can be read.
    """

    size: int = 0
    sha256: str = ""
    examples: int | None = None
    error: str = ""


def question(wanted: Sequence[PathQuery]) -> str:
    """Returns the queries as JSON."""
    return json.dumps([asdict(one) for one in wanted], separators=(",", ":"))


def asked(text: str) -> list[PathQuery]:
    """Returns the queries in the JSON text of a question.

    Raises:
        ValueError: The text is not such a question.
    """
    return [PathQuery(**one) for one in _rows(text, ("place", "sha256", "fetch"))]


def answer(found: Sequence[FoundPath]) -> str:
    """Returns the answers as JSON, in the order of the queries."""
    return json.dumps([asdict(one) for one in found], separators=(",", ":"))


def answered(text: str, expected: int) -> list[FoundPath]:
    """Returns the answers in the JSON text of an answer about `expected` places.

    Raises:
        ValueError: The text is not such an answer, or has another number of places.
    """
    rows = _rows(text, ("size", "sha256", "examples", "error"))
    if len(rows) != expected:
        raise ValueError(f"the answer is about {len(rows)} places, {expected} were asked for")
    return [FoundPath(**one) for one in rows]


def _rows(text: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Parses a JSON list of objects and returns each object reduced to the members `names`.

    Raises:
        ValueError: The text is not such a list, or an object lacks a member.
    """
    try:
        return [{name: one[name] for name in names} for one in json.loads(text)]
    except (ValueError, TypeError, LookupError) as error:
        raise ValueError(f"found {text!r:.80}, needed is a list of objects with {', '.join(names)}") from error
