"""Pagination of lists in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hopyard.errors import InvalidInput

T = TypeVar("T")

DEFAULT_SIZE = 100
MAX_SIZE = 1000


def page(items: Sequence[T], size: int, token: str) -> tuple[list[T], str]:
    """One page of a list and the token of the next; empty on the last.

    Raises:
        InvalidInput: A size or token that no page has.
    """
    if size < 0 or size > MAX_SIZE:
        raise InvalidInput(f"page_size: found {size}, allowed are 0 (means {DEFAULT_SIZE}) to {MAX_SIZE}")
    if token and not token.isdecimal():
        raise InvalidInput(f"page_token: found {token!r}; use the next_page_token of the previous response")
    start = int(token or 0)
    end = start + (size or DEFAULT_SIZE)
    return list(items[start:end]), str(end) if end < len(items) else ""
