"""What is asked of a node about places on it, and what it answers: the JSON of questions of the kind "inspect"."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

INSPECT: Final = "inspect"
"""The kind of these questions."""

LOOK_AGAIN: Final = "data"
"""The ticket of an answer that nobody asked for: what the node holds has changed."""


@dataclass(frozen=True, slots=True)
class PathQuery:
    """A place to look at.

    Attributes:
        place: An absolute path, or a URL: then it is looked whether the node has got it.
        sha256: What it should be; needed for a URL unless it is fetched.
        fetch: Whether to get a URL that is not there yet.
    """

    place: str
    sha256: str = ""
    fetch: bool = False


@dataclass(frozen=True, slots=True)
class FoundPath:
    """What lies at a place.

    Attributes:
        size: Its bytes.
        sha256: Their hash; empty with an error.
        examples: How many it has; None: that cannot be told.
        error: Why it cannot be read; empty: it can.
    """

    size: int = 0
    sha256: str = ""
    examples: int | None = None
    error: str = ""


def question(wanted: Sequence[PathQuery]) -> str:
    """The question as JSON."""
    return json.dumps([asdict(one) for one in wanted], separators=(",", ":"))


def asked(text: str) -> list[PathQuery]:
    """What a question asks.

    Raises:
        ValueError: It is none.
    """
    return [PathQuery(**one) for one in _rows(text, ("place", "sha256", "fetch"))]


def answer(found: Sequence[FoundPath]) -> str:
    """The answer as JSON, in the question's order."""
    return json.dumps([asdict(one) for one in found], separators=(",", ":"))


def answered(text: str, expected: int) -> list[FoundPath]:
    """What an answer says about so many places.

    Raises:
        ValueError: It is none, or about another number of places.
    """
    rows = _rows(text, ("size", "sha256", "examples", "error"))
    if len(rows) != expected:
        raise ValueError(f"the answer is about {len(rows)} places, {expected} were asked for")
    return [FoundPath(**one) for one in rows]


def _rows(text: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """A list of objects that have these members; others are left out."""
    try:
        return [{name: one[name] for name in names} for one in json.loads(text)]
    except (ValueError, TypeError, LookupError) as error:
        raise ValueError(f"found {text!r:.80}, needed is a list of objects with {', '.join(names)}") from error
