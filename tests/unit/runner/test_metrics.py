"""Tests of the lines in a program's output, and of the metrics in lines."""

from __future__ import annotations

import math

import pytest

from hopyard._runtime.runner.command.metrics import (
    LONGEST_LINE,
    LineSplitter,
    MetricReader,
    TrainingCommandError,
    ends_with_permanent_error,
)

pytestmark = pytest.mark.quick


def read(*chunks: bytes) -> list[str]:
    lines = LineSplitter()
    return [line for chunk in chunks for line in lines.feed(chunk)] + lines.rest()


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([b"a=1\nb=2\n"], ["a=1", "b=2"]),
        ([b"a=", b"1", b"\nb", b"=2"], ["a=1", "b=2"]),
        ([b"a=1\r\nb=2\r\n"], ["a=1", "b=2"]),
        ([b"a=1\r", b"\nb=2"], ["a=1", "b=2"]),
        ([b"10% a=1\r50% a=2\r100% a=3\ndone\n"], ["100% a=3", "done"]),
        ([b"10% a=1\r50% a=2"], ["50% a=2"]),
        ([b"\xff\xfe\x00a=1\n"], ["\ufffd\ufffd\x00a=1"]),
        ([b"\n\n"], ["", ""]),
        ([], []),
    ],
)
def test_a_line_is_what_a_terminal_shows_of_it_in_the_end(chunks: list[bytes], expected: list[str]) -> None:
    assert read(*chunks) == expected


def test_a_line_without_end_takes_no_more_than_its_bound() -> None:
    lines = LineSplitter()
    for _ in range(50):
        assert lines.feed(b"x" * LONGEST_LINE) == []
    assert len(lines._partial) <= LONGEST_LINE
    assert lines.feed(b"\nshort\n") == ["x" * LONGEST_LINE, "short"]


def test_a_long_progress_bar_is_kept_as_it_was_drawn_last() -> None:
    lines = LineSplitter()
    for step in range(20_000):
        assert lines.feed(b"\rstep %d acc=0.5" % step) == []
    assert len(lines._partial) <= LONGEST_LINE
    assert lines.feed(b"\n") == ["step 19999 acc=0.5"]


def test_the_experiments_metric_ends_an_iteration_and_the_others_go_with_it() -> None:
    reader = MetricReader({"acc": "acc=(\\S+)", "loss": "loss=(\\S+)"}, "acc")
    assert not reader.read("loss=2.5")
    assert reader.missing().startswith(
        "no line of its output matched the pattern of acc ('acc=(\\\\S+)'); the last lines"
    )
    assert reader.read("loss=1.5 acc=0.5")
    assert reader.values == {"acc": 0.5, "loss": 1.5}
    assert reader.missing() == ""
    assert not reader.read("nothing here")


@pytest.mark.parametrize(
    ("text", "value"), [("1e-3", 0.001), ("inf", math.inf), ("-INF", -math.inf), ("+.5", 0.5), ("7", 7.0)]
)
def test_numbers_are_what_float_reads(text: str, value: float) -> None:
    reader = MetricReader({"acc": "acc=(\\S+)"}, "acc")
    assert reader.read(f"acc={text} ")
    assert reader.values == {"acc": value}


def test_not_a_number_is_a_number() -> None:
    reader = MetricReader({"acc": "acc=(\\S+)"}, "acc")
    assert reader.read("acc=nan")
    assert math.isnan(reader.values["acc"])


def test_what_is_no_number_is_an_error_that_shows_the_line() -> None:
    reader = MetricReader({"acc": "acc=([0-9.]+)"}, "acc")
    with pytest.raises(
        TrainingCommandError, match=r"metric acc: the group of 'acc=.*' holds '0.93.'; allowed: a number .* acc=0.93.$"
    ):
        reader.read("epoch 1: acc=0.93.")


def test_a_group_that_took_no_part_is_no_match() -> None:
    reader = MetricReader({"acc": "acc(=[0-9.]+)?"}, "acc")
    assert not reader.read("acc is unknown")


def test_who_prints_nothing_is_told_so() -> None:
    assert MetricReader({"acc": "acc=(.*)"}, "acc").missing().endswith("; it printed nothing")


@pytest.mark.parametrize(
    ("code", "output", "permanent"),
    [
        (1, "Traceback (most recent call last):\n  File ...\nModuleNotFoundError: No module named 'torhc'\n", True),
        (1, "ImportError: cannot import name 'x'", True),
        (1, "    def f(\n         ^\nSyntaxError: '(' was never closed\n\n", True),
        (1, "IndentationError: unexpected indent", True),
        (1, "ValueError: no", False),
        (1, "ModuleNotFoundError: no\n\nDuring handling of ...\nRuntimeError: no", False),
        (1, "could not print: ImportError: no", False),
        (2, "SyntaxError: invalid syntax", False),
        (0, "ImportError: no", False),
        (1, "it printed nothing", False),
    ],
)
def test_a_python_program_that_cannot_be_imported_is_recognized(code: int, output: str, permanent: bool) -> None:
    assert ends_with_permanent_error(code, output) is permanent
