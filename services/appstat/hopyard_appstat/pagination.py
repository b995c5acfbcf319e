"""Pages of lists: bounded sizes, and tokens that say after which key to go on."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from hopyard.errors import InvalidInput

T = TypeVar("T", bound=Mapping[Any, Any])

DEFAULT_SIZE: Final = 1000
MAX_SIZE: Final = 10_000

_PAGE_BYTES: Final = 16 * 1024 * 1024
"""A page ends early when its longest columns make more than this: it has to fit into a message."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list, and the token of the next part; empty at the end."""

    items: tuple[T, ...]
    next_token: str = ""


@dataclass(frozen=True, slots=True)
class Paging:
    """Which page is wanted.

    Attributes:
        size: Items at most, in 1..MAX_SIZE.
        token: What the page before gave; empty: the first page.
        query: The question, so that a token of another one is refused.
    """

    size: int
    token: str
    query: tuple[str, ...]

    @classmethod
    def of(cls, size: int, token: str, *query: str) -> Paging:
        """The page that a request asks for: size 0 means the default, more than the most is cut to it.

        Raises:
            InvalidInput: The size is negative.
        """
        if size < 0:
            raise InvalidInput(f"page_size: found {size}, allowed are 0 (for {DEFAULT_SIZE}) to {MAX_SIZE}")
        return cls(min(size or DEFAULT_SIZE, MAX_SIZE), token, query)

    def after(self, *types: type) -> tuple[Any, ...]:
        """The key after which the page begins, its parts of these types; empty for the first page.

        Raises:
            InvalidInput: The token is none of this question's.
        """
        if not self.token:
            return ()
        try:
            query, key = json.loads(base64.urlsafe_b64decode(self.token.encode("ascii")))
        except (ValueError, binascii.Error, TypeError) as error:
            raise InvalidInput(f"page_token: found {self.token!r:.80}, allowed is what the page before gave") from error
        fits = (
            query == list(self.query)
            and isinstance(key, list)
            and len(key) == len(types)
            and all(type(part) is kind for part, kind in zip(key, types, strict=True))
        )
        if not fits:
            raise InvalidInput("page_token: it is another question's; ask again without one")
        return tuple(key)

    def token_after(self, key: Sequence[Any]) -> str:
        """The token for the page after a key."""
        return base64.urlsafe_b64encode(json.dumps([self.query, key], separators=(",", ":")).encode()).decode("ascii")


def cut(rows: Sequence[T], paging: Paging, key: Callable[[T], Sequence[Any]]) -> Page[T]:
    """A page from its rows, of which there is one more than its size when it is not the last."""
    end, size = 0, 0
    for row in rows[: paging.size]:
        size += sum(len(value) for value in row.values() if isinstance(value, str))
        if end and size > _PAGE_BYTES:
            break
        end += 1
    return Page(tuple(rows[:end]), paging.token_after(key(rows[end - 1])) if end < len(rows) else "")
