"""Tests of durations as options of commands give them."""

from __future__ import annotations

import pytest

from hopyard.errors import InvalidInput
from hopyard.spec.units import KEEP_UNKNOWN, option_seconds, seconds

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("given", "expected"), [("90", 90.0), ("0.5", 0.5), ("30s", 30.0), ("1h30m", 5400.0), ("1d", 86400.0)]
)
def test_an_option_is_a_number_of_seconds_or_a_length_of_time(given: str, expected: float) -> None:
    assert option_seconds("--time", given) == expected


@pytest.mark.parametrize("given", ["", "soon", "-5", "0", "5 m", "1e3"])
def test_a_wrong_length_of_time_is_refused_with_the_name_of_the_option(given: str) -> None:
    with pytest.raises(InvalidInput, match=r"^--time: needs a length of time"):
        option_seconds("--time", given)


def test_zero_is_a_duration_only_where_it_is_allowed() -> None:
    assert seconds("0s", zero=True) == seconds(0, zero=True) == 0
    assert seconds("1h30m", zero=True) == seconds("1h30m") == 5400
    with pytest.raises(ValueError, match="needs a length of time above 0, found"):
        seconds("0s")
    assert option_seconds("--older-than", "0", zero=True) == option_seconds("--older-than", "0s", zero=True) == 0


@pytest.mark.parametrize("given", ["23h", "3651d", "100"])
def test_an_option_may_have_bounds(given: str) -> None:
    assert option_seconds("--keep-unknown", "1d", allowed=KEEP_UNKNOWN) == 86400.0
    with pytest.raises(InvalidInput, match=f"^--keep-unknown: allowed are 1d to 3650d, found {given}$"):
        option_seconds("--keep-unknown", given, allowed=KEEP_UNKNOWN)
