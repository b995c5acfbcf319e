"""Pagination of in-memory lists for list RPCs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hopyard.errors import InvalidInput

T = TypeVar("T")

DEFAULT_SIZE = 100
MAX_SIZE = 1000
_LONGEST_TOKEN = 18


def page(items: Sequence[T], size: int, token: str) -> tuple[list[T], str]:
    """Return one page of a list and the token of the next page.

    Args:
        items: The whole list.
        size: Maximum number of items on the page, at most `MAX_SIZE`; 0 selects `DEFAULT_SIZE`.
        token: The token that the call for the previous page returned; empty: the first page.

    Returns:
        The items of the page, and the token of the next page. The token is empty if this is the last page.

    Raises:
        InvalidInput: `size` is out of its range, or `token` is not a number of at most 18 digits.
    """
    if size < 0 or size > MAX_SIZE:
        raise InvalidInput(f"page_size: found {size}, allowed are 0 (means {DEFAULT_SIZE}) to {MAX_SIZE}")
    if token and not (token.isascii() and token.isdecimal() and len(token) <= _LONGEST_TOKEN):
        raise InvalidInput(f"page_token: found {token!r:.80}; use the next_page_token of the previous response")
    start = int(token or 0)
    end = start + (size or DEFAULT_SIZE)
    return list(items[start:end]), str(end) if end < len(items) else ""
