"""Pagination of lists: size limits, and page tokens, which contain the sort key of the last item of the previous page."""

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
"""Maximum number of characters in the text columns of a page, because a page must fit into a message.

A page of more than one row ends before it exceeds the limit.
"""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list.

    Attributes:
        items: The items of the page, in the order of the list.
        next_token: Token with which a client requests the next page; empty: this is the last page.
    """

    items: tuple[T, ...]
    next_token: str = ""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A client's request for one page of a list.

    Attributes:
        size: Maximum number of items, 1 to `MAX_SIZE`.
        token: Token that the previous page returned; empty: the first page.
        query: Name and arguments of the query; a token of another query is refused.
    """

    size: int
    token: str
    query: tuple[str, ...]

    @classmethod
    def of(cls, size: int, token: str, *query: str) -> PageRequest:
        """Return a `PageRequest` for the paging fields of a gRPC request.

        Args:
            size: Requested maximum number of items; 0 means `DEFAULT_SIZE`, and sizes above `MAX_SIZE` are reduced to it.
            token: Token that the previous page returned; empty: the first page.
            *query: Name and arguments of the query.

        Raises:
            InvalidInput: The size is negative.
        """
        if size < 0:
            raise InvalidInput(f"page_size: found {size}, allowed are 0 (for {DEFAULT_SIZE}) to {MAX_SIZE}")
        return cls(min(size or DEFAULT_SIZE, MAX_SIZE), token, query)

    def after(self, *types: type) -> tuple[Any, ...]:
        """Return the sort key after which the page begins; empty for the first page.

        Args:
            *types: Type of each component of the key. A token whose key has other types belongs to another query.

        Raises:
            InvalidInput: The token is malformed or belongs to another query.
        """
        if not self.token:
            return ()
        try:
            query, key = json.loads(base64.urlsafe_b64decode(self.token.encode("ascii")))
        except (ValueError, binascii.Error, TypeError, RecursionError) as error:
            raise InvalidInput(
                f"page_token: found {self.token!r:.80}, allowed is the token of the previous page"
            ) from error
        fits = (
            query == list(self.query)
            and isinstance(key, list)
            and len(key) == len(types)
            and all(type(part) is kind and _is_stored(part) for part, kind in zip(key, types, strict=True))
        )
        if not fits:
            raise InvalidInput("page_token: it belongs to another query; start again without one")
        return tuple(key)

    def token_after(self, key: Sequence[Any]) -> str:
        """Return the token of the page that begins after the sort key `key`."""
        return base64.urlsafe_b64encode(json.dumps([self.query, key], separators=(",", ":")).encode()).decode("ascii")


def _is_stored(part: object) -> bool:
    """Return whether a component of a sort key can be a value of a column: integers have at most 64 bits."""
    return not isinstance(part, int) or -(2**63) <= part < 2**63


def cut(rows: Sequence[T], paging: PageRequest, key: Callable[[T], Sequence[Any]]) -> Page[T]:
    """Return a page from the rows of a query.

    Args:
        rows: Rows of a query with a limit of `paging.size + 1`. The additional row shows that another page follows.
        paging: The requested page.
        key: Returns the sort key of a row.
    """
    end, size = 0, 0
    for row in rows[: paging.size]:
        size += sum(len(value) for value in row.values() if isinstance(value, str))
        if end and size > _PAGE_BYTES:
            break
        end += 1
    return Page(tuple(rows[:end]), paging.token_after(key(rows[end - 1])) if end < len(rows) else "")
