"""Questions of the scheduler to a node about data at paths and URLs, and the answers, as JSON texts.

In the messages between scheduler and node agent, these questions have the kind `INSPECT`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from hopyard._common.bounded_json import read_count, read_json

INSPECT: Final = "inspect"
"""Kind of the questions to a node about data at paths and URLs."""

LOOK_AGAIN: Final = "data"
"""Ticket of an unsolicited answer, with which a node announces that its data has changed."""

_SHA256: Final = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class PathQuery:
    """A query about the data at one path or URL.

    Attributes:
        place: An absolute path on the node, or a URL; for a URL, the query is about the node's copy of it.
        sha256: Expected hash of the data; required for a URL unless `fetch` is set.
        fetch: Whether the node downloads the URL if it has no copy.
    """

    place: str
    sha256: str = ""
    fetch: bool = False


@dataclass(frozen=True, slots=True)
class PathAnswer:
    """The answer of a node to one `PathQuery`.

    Attributes:
        size: Size of the data in bytes; 0 with an error.
        sha256: Hash of the data; empty with an error.
        examples: Number of examples; None: unknown.
        error: Why the data cannot be read; empty: it can be read.
    """

    size: int = 0
    sha256: str = ""
    examples: int | None = None
    error: str = ""


def question(wanted: Sequence[PathQuery]) -> str:
    """Return the JSON text of a question that consists of the queries `wanted`, in their order."""
    return json.dumps([asdict(one) for one in wanted], separators=(",", ":"))


def asked(text: str) -> list[PathQuery]:
    """Return the queries in the JSON text of a question, the inverse of `question`.

    Raises:
        ValueError: The text is not a JSON list of queries.
    """
    return [PathQuery(**one) for one in _rows(text, ("place", "sha256", "fetch"))]


def answer(found: Sequence[PathAnswer]) -> str:
    """Return the JSON text of an answer; `found` has one element for each query, in the same order."""
    return json.dumps([asdict(one) for one in found], separators=(",", ":"))


def answered(text: str, expected: int) -> list[PathAnswer]:
    """Return the elements of an answer, the inverse of `answer`.

    Args:
        text: JSON text of the answer.
        expected: Number of queries in the question.

    Raises:
        ValueError: The text is not a JSON list of answers, has another number of elements, or an element is invalid. The message
            names the invalid field.
    """
    rows = _rows(text, ("size", "sha256", "examples", "error"))
    if len(rows) != expected:
        raise ValueError(f"the answer is about {len(rows)} places, {expected} were asked for")
    return [_path_answer(**one) for one in rows]


def _path_answer(size: object, sha256: object, examples: object, error: object) -> PathAnswer:
    if not isinstance(error, str):
        raise ValueError(f"error: found {error!r:.80}, allowed is text")
    if not isinstance(sha256, str) or not (_SHA256.fullmatch(sha256) or (error and not sha256)):
        raise ValueError(f"sha256: found {sha256!r:.80}, allowed are 64 lower-case hexadecimal digits")
    known = None if examples is None else read_count(examples, "examples")
    return PathAnswer(read_count(size, "size"), sha256, known, error)


def _rows(text: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Parse a JSON list of objects, and return each object reduced to the members `names`.

    Raises:
        ValueError: The text is not such a list, or an object lacks a member.
    """
    needed = f"found {text!r:.80}, needed is a list of objects with {', '.join(names)}"
    try:
        return [{name: one[name] for name in names} for one in read_json(text)]
    except ValueError as error:
        raise ValueError(f"{needed}; it {error}") from error
    except (TypeError, LookupError) as error:
        raise ValueError(needed) from error
