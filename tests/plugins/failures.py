"""Lets a failure explain itself: how to repeat it, the logs of its services, the stacks of what hangs.

A run leaves three files in the folder `.test-results`, or the one that HOPYARD_TEST_RESULTS names: `junit.xml`, `slowest.txt`
and `failed.txt`.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import traceback
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from tests.plugins import processes

RESULTS_VARIABLE: Final = "HOPYARD_TEST_RESULTS"
SLOWEST: Final = 50
_HANGS: Final = 0.7
"""After this part of its time limit the stacks of a test and of its processes are taken, while what hangs still hangs."""
_LOG_FILES: Final = 20
_LOG_BYTES: Final = 6_000

_stacks = pytest.StashKey[list[str]]()


def results() -> Path:
    """Return the folder for what a run leaves."""
    return Path(os.environ.get(RESULTS_VARIABLE, ".test-results")).absolute()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Have JUnit XML written, once in a run."""
    if not hasattr(config, "workerinput"):
        results().mkdir(parents=True, exist_ok=True)
        config.option.xmlpath = config.option.xmlpath or str(results() / "junit.xml")


# ------------------------------------------------------------------------------------------------------------ what hangs


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Take the stacks of a test that takes so long that it probably hangs."""
    stacks = item.stash.setdefault(_stacks, [])
    marker = item.get_closest_marker("timeout")
    limit = float(marker.args[0] if marker is not None and marker.args else os.environ["PYTEST_TIMEOUT"])
    timer = threading.Timer(_HANGS * limit, lambda: stacks.append(_all_stacks(item)))
    timer.daemon = True
    timer.start()
    try:
        return (yield)
    finally:
        timer.cancel()


def _all_stacks(item: pytest.Item) -> str:
    text = io.StringIO()
    for number, frame in sys._current_frames().items():
        text.write(f"thread {number} of the test\n{''.join(traceback.format_stack(frame)[-12:])}\n")
    for process in processes.find(processes.mark_of(item)):
        text.write(f"process {process}\n{processes.stack(process)}\n")
    return text.getvalue()


# --------------------------------------------------------------------------------------------------------- what is shown


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report of a failure what explains it."""
    report = yield
    if report.failed:
        report.sections.append(("repeat it", repeat(item)))
        for path, text in _logs(item):
            report.sections.append((f"log {path}", text))
        hung = item.stash.get(_stacks, [])
        if report.when == "call" and not hung and processes.find(processes.mark_of(item)):
            hung = [_all_stacks(item)]
        report.sections.extend(("stacks", text) for text in hung)
    return report


def repeat(item: pytest.Item) -> str:
    """Return the command that repeats a test with the seed of this run."""
    seed = item.config.getoption("randomly_seed", None)
    given = "" if seed is None else f" --randomly-seed={seed}"
    return f".venv/bin/python -m pytest{given} {_quoted(item.nodeid)}"


def _quoted(nodeid: str) -> str:
    return "'" + nodeid.replace("'", "'\\''") + "'"


def _logs(item: pytest.Item) -> list[tuple[str, str]]:
    """Return the ends of the log files in the folder of a test."""
    arguments: dict[str, Any] = getattr(item, "funcargs", {})
    folder = arguments.get("tmp_path")
    if not isinstance(folder, Path) or not folder.is_dir():
        return []
    found = []
    for path in sorted(folder.rglob("*.log"))[:_LOG_FILES]:
        with suppress(OSError):
            text = path.read_bytes()[-_LOG_BYTES:].decode(errors="replace")
            if text:
                found.append((str(path.relative_to(folder)), text))
    return found


# ---------------------------------------------------------------------------------------------------------- what is left


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Write the lists of the slowest and of the failed tests."""
    seconds: dict[str, float] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid] = seconds.get(report.nodeid, 0.0) + report.duration
    slowest = sorted(seconds.items(), key=lambda one: -one[1])[:SLOWEST]
    (results() / "slowest.txt").write_text("".join(f"{took:8.2f} s  {nodeid}\n" for nodeid, took in slowest))
    failed = [r.nodeid for kind in ("failed", "error") for r in terminalreporter.stats.get(kind, ())]
    (results() / "failed.txt").write_text("".join(f"{nodeid}\n" for nodeid in dict.fromkeys(failed)))
