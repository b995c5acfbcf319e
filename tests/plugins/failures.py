"""Adds diagnostics to failure reports: the command that repeats the test, service logs, and stacks of hung processes.

A run writes `junit.xml`, `slowest.txt` and `failed.txt` to `.test-results`, or to the folder in HOPYARD_TEST_RESULTS.
"""

from __future__ import annotations

import io
import os
import shlex
import sys
import threading
import traceback
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from tests.plugins import CI_VARIABLE, REPOSITORY, processes
from tests.plugins.tiers import TIERS

RESULTS_VARIABLE: Final = "HOPYARD_TEST_RESULTS"
SLOWEST_COUNT: Final = 50
_HANG_FRACTION: Final = 0.7
"""Fraction of a test's time limit after which its stacks are recorded, while it still hangs."""
_LOG_FILES: Final = 20
_LOG_BYTES: Final = 6_000
_VARIABLES: Final = (CI_VARIABLE, "KILLS_SEED")
"""Environment variables that change what a test does."""

_stacks = pytest.StashKey[list[str]]()


def results_folder() -> Path:
    """Return the report folder of this run."""
    return Path(os.environ.get(RESULTS_VARIABLE, ".test-results")).absolute()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Write JUnit XML, from the controller of a parallel run only."""
    if not hasattr(config, "workerinput"):
        results_folder().mkdir(parents=True, exist_ok=True)
        config.option.xmlpath = config.option.xmlpath or str(results_folder() / "junit.xml")


# ------------------------------------------------------------------------------------------------------------ hangs


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Record the stacks of a test that approaches its time limit."""
    stacks = item.stash.setdefault(_stacks, [])
    marker = item.get_closest_marker("timeout")
    limit = float(marker.args[0] if marker is not None and marker.args else os.environ["PYTEST_TIMEOUT"])
    timer = threading.Timer(_HANG_FRACTION * limit, _record_stacks, (item, stacks))
    timer.daemon = True
    timer.start()
    try:
        return (yield)
    finally:
        timer.cancel()


def _record_stacks(item: pytest.Item, stacks: list[str]) -> None:
    """Append the stacks of this process, then of the others: py-spy may take longer than the test has left."""
    text = io.StringIO()
    for number, frame in sys._current_frames().items():
        text.write(f"thread {number} of the test\n{''.join(traceback.format_stack(frame)[-12:])}\n")
    stacks.append(text.getvalue())
    for process in processes.find(processes.mark_of(item)):
        stacks.append(f"process {process}\n{processes.stack(process)}\n")


# --------------------------------------------------------------------------------------------------------- diagnostics


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add diagnostics to the report of a failed test."""
    report = yield
    if report.failed:
        report.sections.append(("repeat it", rerun_command(item)))
        for path, text in _logs(item):
            report.sections.append((f"log {path}", text))
        hung = item.stash.get(_stacks, [])
        if report.when == "call" and not hung and processes.find(processes.mark_of(item)):
            _record_stacks(item, hung)
        report.sections.extend(("stacks", text) for text in list(hung))
    return report


def rerun_command(item: pytest.Item) -> str:
    """Return the command that repeats a test, from the root of the repository, with the seed, tier and variables of this run."""
    variables = [f"{name}={os.environ[name]}" for name in _VARIABLES if name in os.environ]
    interpreter = Path(sys.executable)
    if interpreter.is_relative_to(REPOSITORY):
        interpreter = interpreter.relative_to(REPOSITORY)
    seed = item.config.getoption("randomly_seed", None)
    options = [] if seed is None else [f"--randomly-seed={seed}"]
    tier = item.config.getoption("tier")
    if tier in TIERS:
        options.append(f"--tier={tier}")
    return shlex.join([*variables, str(interpreter), "-m", "pytest", *options, item.nodeid])


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


# ---------------------------------------------------------------------------------------------------------- reports


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Write the lists of the slowest and the failed tests."""
    seconds: dict[str, float] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid] = seconds.get(report.nodeid, 0.0) + report.duration
    slowest = sorted(seconds.items(), key=lambda one: -one[1])[:SLOWEST_COUNT]
    (results_folder() / "slowest.txt").write_text("".join(f"{took:8.2f} s  {nodeid}\n" for nodeid, took in slowest))
    failed = [r.nodeid for kind in ("failed", "error") for r in terminalreporter.stats.get(kind, ())]
    (results_folder() / "failed.txt").write_text("".join(f"{nodeid}\n" for nodeid in dict.fromkeys(failed)))
