"""Tests of a C++ program that exchanges messages with its runner by files, like Python scripts whose processes may be dumped."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hopyard._runtime.runner.command.progress_sources import Mailbox, Reported
from hopyard.policy.vocabulary import RunEndReason
from hopyard.trainer import IterationReport
from tests.cpp import Programs
from tests.timing import HANG_SECONDS

pytestmark = pytest.mark.timeout(600)

PATIENCE = HANG_SECONDS
LEFT = {RunEndReason.UNTIL: "left: 1", RunEndReason.SUSPENDED: "left: 2", RunEndReason.TERMINATED: "left: 3"}
"""The output of the program, which shows hopyard::decision()."""


@contextmanager
def program(cpp: Programs, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    variables = {"HOPYARD_MAILBOX": str(folder), "HOPYARD_SEED": "5", "HOPYARD_HYPERPARAMETERS": "{}"}
    with subprocess.Popen(
        [cpp.counter, *arguments],
        cwd=folder,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def next_reports(box: Mailbox, count: int, last: int = 0, source: Reported | None = None) -> list[IterationReport]:
    """Wait for `count` reports after the one at position `last` and return them, parsed by `source`."""
    source, found = source or Reported(), list[IterationReport]()
    until = time.monotonic() + PATIENCE
    while len(found) < count:
        assert time.monotonic() < until, found
        box.reports.read()
        for line in iter(box.reports.line, None):
            report = source.take(line, last + len(found), 0.0)
            assert report is not None
            found.append(report)
    return found


@pytest.mark.parametrize("reason", LEFT)
def test_a_script_waits_where_it_must_and_leaves_when_it_is_told(
    cpp: Programs, tmp_path: Path, reason: RunEndReason
) -> None:
    box = Mailbox(tmp_path)
    box.open()
    box.say(go=0, free=3)
    with program(cpp, tmp_path, "script", "--forget=0", "--fork=2") as process:
        first = next_reports(box, 3)
        assert [report.position for report in first] == [1, 2, 3]
        assert all(0 < report.metrics["count"] < 1 and report.seconds >= 0 for report in first)
        assert process.poll() is None
        box.say(go=3, free=3)
        (fourth,) = next_reports(box, 1, last=3)
        assert fourth.position == 4
        box.say(go=0, free=0, leave=reason)
        said, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said.strip(), errors) == (0, LEFT[reason], "")
    assert (tmp_path / "speaker").read_text() == str(process.pid)
    box.reports.close()


def test_with_a_checkpoint_it_says_where_that_lies_and_waits_whatever_is_free(cpp: Programs, tmp_path: Path) -> None:
    box = Mailbox(tmp_path)
    box.open()
    box.say(go=0, free=9)
    source = Reported()
    with program(cpp, tmp_path, "script", "--finish=2") as process:
        next_reports(box, 1, source=source)
        assert source.checkpoint == ("last.txt", str((tmp_path / "last.txt").resolve()))
        assert process.poll() is None
        box.say(go=1, free=9)
        next_reports(box, 1, last=1)
        box.say(go=2, free=9)
        assert process.wait(PATIENCE) == 0
    box.reports.close()


def test_a_trainer_that_has_finished_ends_its_process(cpp: Programs, tmp_path: Path) -> None:
    box = Mailbox(tmp_path)
    box.open()
    box.say(go=0, free=10)
    with program(cpp, tmp_path, "trainer", "--finish=2", "--nan=1") as process:
        one, two = next_reports(box, 2)
        assert (one.position, two.position) == (1, 2)
        assert one.metrics["count"] != one.metrics["count"]  # NaN.
        assert process.wait(PATIENCE) == 0
    box.reports.close()


def test_what_a_trainer_throws_stands_in_its_log(cpp: Programs, tmp_path: Path) -> None:
    with program(cpp, tmp_path, "trainer", "--throw=0") as process:
        _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (1, "hopyard: train at position 0: the count ran out (std::runtime_error)\n")


def test_only_one_process_speaks_for_a_run(cpp: Programs, tmp_path: Path) -> None:
    (tmp_path / "speaker").write_text("123")
    for style in ("script", "trainer"):
        with program(cpp, tmp_path, style) as process:
            _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode != 0
        assert "process 123 speaks for this run" in errors
