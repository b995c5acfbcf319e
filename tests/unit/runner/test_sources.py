"""Tests of how a runner reads the output of a program that it started: line by line, with the offset in the file."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from hopyard._runtime.job_log import LOG_POSITION, LogPosition, position_of
from hopyard._runtime.runner.command.metrics import LONGEST_LINE, TrainingCommandError
from hopyard._runtime.runner.command.progress_sources import FileTail, OutputMetrics, Reported

pytestmark = pytest.mark.quick


def test_a_tail_knows_behind_which_line_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "output"
    file.write_bytes(b"before\n")
    tail = FileTail(file, start=7)
    with file.open("ab") as out:
        out.write(b"one\ntwo\nthr")
    tail.read()
    assert (tail.offset, tail.echoed) == (7, 11)
    assert (tail.line(), tail.offset) == ("one", 11)
    assert (tail.line(), tail.line(), tail.offset) == ("two", None, 15)
    with file.open("ab") as out:
        out.write(b"ee\n")
    tail.read()
    assert (tail.line(), tail.offset, tail.echoed) == ("three", 21, 0)
    tail.close()


def test_a_line_that_is_too_long_counts_with_all_its_bytes(tmp_path: Path) -> None:
    file = tmp_path / "output"
    file.write_bytes(b"\rstep" * LONGEST_LINE + b"\nnext\n")
    tail = FileTail(file, start=0)
    tail.read()
    assert (tail.line(), tail.offset) == ("step", 5 * LONGEST_LINE + 1)
    assert tail.line() == "next"
    tail.close()


def test_what_another_node_has_copied_is_not_copied_again(tmp_path: Path) -> None:
    file, echo = tmp_path / "output", io.BytesIO()
    file.write_bytes(b"copied\nnew\n")
    tail = FileTail(file, start=0, echo=echo, echoed=7)
    tail.read()
    assert (tail.line(), tail.line(), echo.getvalue()) == ("copied", "new", b"new\n")
    tail.close()


def test_the_last_values_of_metrics_go_with_the_processes() -> None:
    source = OutputMetrics({"acc": r"acc=(\S+)", "loss": r"loss=(\S+)"}, "acc")
    assert source.take("loss=2.5", 0, 0.1) is None
    there = OutputMetrics({"acc": r"acc=(\S+)", "loss": r"loss=(\S+)"}, "acc")
    there.recall(source.keep())
    report = there.take("acc=0.5", 3, 0.25)
    assert report is not None
    assert (report.position, report.metrics, report.seconds) == (4, {"acc": 0.5, "loss": 2.5}, 0.25)


def test_a_scripts_reports_are_taken_as_they_are() -> None:
    source = Reported()
    assert "reported nothing" in source.missing()
    report = source.take('{"position": 5, "metrics": {"x": NaN}, "seconds": 0.5}', 2, 9.0)
    assert report is not None
    assert (report.position, report.seconds, str(report.metrics["x"])) == (5, 0.5, "nan")
    assert source.missing() == ""
    with pytest.raises(TrainingCommandError, match="position 5 behind 5"):
        source.take('{"position": 5, "metrics": {}, "seconds": 0.5}', 5, 9.0)
    with pytest.raises(TrainingCommandError, match="is damaged"):
        source.take('{"position": 5', 2, 9.0)


def test_a_tail_records_how_far_lines_were_taken(tmp_path: Path) -> None:
    file, place = tmp_path / "output", tmp_path / LOG_POSITION
    file.write_bytes(b"before\n" + b"x" * 20_000 + b"\nnot taken\n")
    tail = FileTail(file, start=7, position=LogPosition(place, 7))
    tail.read()
    assert position_of(place) == 7
    assert tail.line() is not None
    tail.read()
    assert position_of(place) == 20_008
    tail.close()


def test_a_tail_frees_the_space_of_what_nobody_else_reads(tmp_path: Path) -> None:
    file = tmp_path / "output"
    file.write_bytes(b"x" * 4_000_000 + b"\nnot taken\n")
    tail = FileTail(file, start=0, frees=True)
    tail.read()
    assert tail.line() is not None
    tail.read()
    assert file.stat().st_blocks * 512 < 100_000
    assert (tail.line(), tail.offset) == ("not taken", file.stat().st_size)
    tail.close()
