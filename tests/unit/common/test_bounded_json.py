"""Tests of the limits for JSON of unknown origin."""

from __future__ import annotations

import math

import pytest

from hopyard._common.bounded_json import MAX_COUNT, MAX_DEPTH, read_count, read_json

pytestmark = pytest.mark.quick


def test_values_within_the_limits_are_read() -> None:
    assert read_json('{"a": [1, 2.5, null, true, "\\ud83d\\ude00"]}') == {"a": [1, 2.5, None, True, "\U0001f600"]}
    assert read_json("é".encode().join([b'"', b'"'])) == "é"
    assert math.isnan(read_json("NaN"))
    assert float(read_json("9" * 308)) == 1e308
    nested = read_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    for _ in range(MAX_DEPTH - 1):
        (nested,) = nested
    assert nested == []
    assert read_json("[{}," + "[]," * 2 * MAX_DEPTH + "[]]")[0] == {}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[" * 100_000, "is nested deeper than 100 levels"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "is nested deeper than 100 levels"),
        ('{"a":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1), "is nested deeper than 100 levels"),
        ("[" + "9" * 309 + "]", "an integer of 309 characters"),
        ("-" + "9" * 10_000, "an integer of 10001 characters"),
        ('{"error": "\\uD800"}', "unpaired surrogate"),
        ('{"\\udc00": 1}', "unpaired surrogate"),
        (b'"\xed\xa0\x80"', "is not JSON: .* can't decode"),
        ("{", "is not JSON: Expecting"),
    ],
    ids=["unclosed", "lists", "objects", "integer", "long integer", "surrogate", "key", "bytes", "no JSON"],
)
def test_what_exceeds_a_limit_is_refused(text: str | bytes, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        read_json(text)


def test_counts_are_bounded_integers() -> None:
    assert [read_count(found, "size") for found in (0, MAX_COUNT)] == [0, MAX_COUNT]
    for found in (-1, MAX_COUNT + 1, 2**63, 1.5, math.nan, True, None, "abc", "7"):
        with pytest.raises(ValueError, match=r"^size: found .*, allowed is an integer from 0 to"):
            read_count(found, "size")
