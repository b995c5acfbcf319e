"""Tests of numbers, lines and plots as text."""

from __future__ import annotations

import math
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard._common import formatting
from hopyard.cli.live.curves import bar, plot, resample, scale, sparkline
from hopyard_engine.explain.events import EventPart
from hopyard_engine.explain.story import StoryLine
from hopyard_tools.commands.events import _shown

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("seconds", "told"), [(9.58e-05, "0.1ms"), (0.0451, "45.1ms"), (0.45, "0.45s"), (12.34, "12.3s"), (61.0, "1m 01s")]
)
def test_short_times(seconds: float, told: str) -> None:
    assert formatting.short_time(seconds) == told


@pytest.mark.parametrize(("at", "told"), [(-1e300, "-1e+300"), (1e13, "1e+13"), (math.inf, "inf"), (math.nan, "nan")])
def test_a_time_that_no_calendar_has_is_shown_as_a_number(at: float, told: str) -> None:
    assert formatting.moment(at) == told
    assert f" {told}  paused" in _shown(StoryLine(7, at, "Operated", (EventPart("", "paused"),)), 3)


def test_times() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678900).timestamp()
    assert formatting.moment(at) == "2026-01-02 03:04"
    line = StoryLine(7, at, "Operated", (EventPart("", "paused \x1b[31m\x9b"),))
    assert _shown(line, 3) == "  7  01-02 03:04:05.678  paused \\x1b[31m\\x9b"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "-"),
        (0.0, "0"),
        (0.97123456, "0.9712"),
        (12.5, "12.5"),
        (123456.0, "1.23e+05"),
        (1e-7, "1e-07"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
    ],
)
def test_numbers(value: float | None, expected: str) -> None:
    assert formatting.number(value) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(None, "-"), (0.4, "0s"), (59.9, "59s"), (61, "1m 01s"), (3700, "1h 01m"), (90000, "1d 01h"), (math.inf, "-")],
)
def test_durations(seconds: float | None, expected: str) -> None:
    assert formatting.duration(seconds) == expected


def test_hyperparameters() -> None:
    values = {"lr": 0.000123456, "batch": 32, "on": True, "none": None, "steps": [1, 2]}
    assert formatting.hyperparameters(values) == "batch=32 lr=0.000123 none=null on=true steps=[1,2]"


def test_sizes_and_counts() -> None:
    assert [formatting.size(count) for count in (5, 2048, 3 * 1024**2, 5 * 1024**3)] == [
        "5 B",
        "2.0 KiB",
        "3.0 MiB",
        "5.0 GiB",
    ]
    assert (formatting.count(1, "job"), formatting.count(3, "job")) == ("1 job", "3 jobs")


def test_sparkline_heights() -> None:
    assert sparkline([0, 0.5, 1, math.nan], 0, 1) == "▁▅█✗"
    assert sparkline([2, 2], 2, 2) == "▅▅"
    assert sparkline([0, 1, math.inf], 0, 1, ascii_only=True).isascii()


@pytest.mark.merge
@given(st.lists(st.floats()), st.integers(min_value=1, max_value=40))
def test_sparklines_of_anything_fit(values: list[float], width: int) -> None:
    shown = resample(values, width)
    assert len(shown) <= width
    low, high = scale([shown])
    assert len(sparkline(shown, low, high)) == len(shown)
    if values and math.isfinite(values[-1]):
        assert shown[-1] == values[-1]


def test_one_outlier_does_not_flatten_the_rest() -> None:
    _, high = scale([[1e9] + [0.1 * number for number in range(100)]])
    assert high < 100


@given(st.floats(min_value=-1, max_value=2), st.integers(min_value=1, max_value=20), st.booleans())
def test_bars_have_their_width(part: float, width: int, ascii_only: bool) -> None:
    assert len(bar(part, width, ascii_only=ascii_only)) == width


def test_a_plot_shows_ranges_and_fits() -> None:
    lines = plot([(x, math.sqrt(x)) for x in range(1, 50)], 60, 8, title="a curve")
    assert lines[0] == "a curve"
    assert lines[1].startswith("7 ┤")
    assert lines[8].startswith("1 ┤")
    assert lines[9].split() == ["1", "49"]
    assert max(map(len, lines)) <= 60


@pytest.mark.merge
@given(
    st.lists(st.floats(), max_size=30),
    st.integers(min_value=20, max_value=100),
)
def test_plots_of_anything(values: list[float], width: int) -> None:
    lines = plot(list(enumerate(values)), width, 5)
    if any(math.isfinite(value) for value in values):
        assert len(lines) == 6
    else:
        assert lines == ["no finite values yet"]


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("", ""),
        ("\n  ValueError: no\nmore", "ValueError: no"),
        ("exit code 1; the last lines read:\nacc=1\nNameError: x\n", "exit code 1; its last line: NameError: x"),
        ("ended with exit code 3; its last lines:\nbad", "ended with exit code 3; its last line: bad"),
        ("it ended; it said:\na\nb", "it ended; it said: b"),
        ("exit code 1; the last lines read:", "exit code 1; the last lines read:"),
    ],
)
def test_one_line_of_a_reason_does_not_end_before_the_cause(reason: str, shown: str) -> None:
    assert formatting.first_line(reason) == shown


def test_a_sequence_is_a_short_text() -> None:
    lr = {"sequence": {"multi_step": {"initial": 0.1, "milestones": [40], "gamma": 0.1}}}
    assert (
        formatting.hyperparameters({"lr": lr, "n": 3}) == "lr=multi_step(initial=0.1, milestones=[40], gamma=0.1) n=3"
    )
