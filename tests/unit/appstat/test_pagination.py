from __future__ import annotations

import base64
from typing import Any

import pytest

from hopyard.errors import InvalidInput
from hopyard_appstat.pagination import DEFAULT_SIZE, MAX_SIZE, PageRequest, cut

pytestmark = pytest.mark.quick

ROWS: list[dict[Any, Any]] = [{"name": f"s{number}"} for number in range(5)]


def page(size: int, token: str, rows: list[dict[Any, Any]] = ROWS) -> tuple[tuple[str, ...], str]:
    paging = PageRequest.of(size, token, "streams")
    after = paging.after(str)
    left = [row for row in rows if not after or row["name"] > after[0]][: paging.size + 1]
    got = cut(left, paging, lambda row: (row["name"],))
    return tuple(str(row["name"]) for row in got.items), got.next_token


def test_pages_are_the_whole_list_once() -> None:
    seen: list[str] = []
    token, pages = "", 0
    while pages == 0 or token:
        items, token = page(2, token)
        seen += items
        pages += 1
    assert seen == ["s0", "s1", "s2", "s3", "s4"]
    assert pages == 3


def test_a_full_last_page_is_the_last() -> None:
    assert page(5, "") == (("s0", "s1", "s2", "s3", "s4"), "")


def test_a_page_ends_early_when_it_grows_too_large() -> None:
    large = [{"name": f"{number}" + "x" * 9_000_000} for number in range(3)]
    items, token = page(0, "", large)
    assert len(items) == 1
    assert token


def test_sizes() -> None:
    assert PageRequest.of(0, "", "q").size == DEFAULT_SIZE
    assert PageRequest.of(10**6, "", "q").size == MAX_SIZE
    with pytest.raises(InvalidInput, match="page_size: found -1"):
        PageRequest.of(-1, "", "q")


@pytest.mark.parametrize("token", ["x", "ü", "bm9wZQ==", "W10=", "WzEsMl0="])
def test_a_token_that_is_none_is_refused(token: str) -> None:
    with pytest.raises(InvalidInput, match="page_token"):
        PageRequest.of(1, token, "streams").after(str)


@pytest.mark.parametrize("key", ["[" * 20_000, f"[{'9' * 5000}]", f"[{2**63}]"])
def test_a_forged_token_is_refused(key: str) -> None:
    token = base64.urlsafe_b64encode(f'[["streams"],{key}]'.encode()).decode()
    with pytest.raises(InvalidInput, match="page_token"):
        PageRequest.of(1, token, "streams").after(int)


def test_a_token_of_another_question_is_refused() -> None:
    token = PageRequest.of(1, "", "jobs", "e1").token_after((1, "j"))
    assert PageRequest.of(1, token, "jobs", "e1").after(int, str) == (1, "j")
    with pytest.raises(InvalidInput, match="another query"):
        PageRequest.of(1, token, "jobs", "e2").after(int, str)
    with pytest.raises(InvalidInput, match="another query"):
        PageRequest.of(1, token, "jobs", "e1").after(str)
