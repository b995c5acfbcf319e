"""Finds the processes that a test started by a mark in their environment. Forked children that never exec are not found."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

MARK: Final = "PYTHON_TEST_PROCESS_MARK"
"""Environment variable that names the test, or the wider fixture, that started a process.

Agents pass variables with this prefix to training processes, as those of Python, and none that begins with HOPYARD_.
"""

_PY_SPY_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class MarkedProcess:
    """A process that a test started.

    Attributes:
        pid: The process id.
        command: The command line.
    """

    pid: int
    command: str

    def __str__(self) -> str:
        """Return the process id and the shortened command line."""
        return f"{self.pid}: {self.command[:160]}"


def mark_of(item: pytest.Item) -> str:
    """Return the mark of the processes of a test."""
    return f"{os.getpid()} {item.nodeid} "


def mark_of_fixture(name: str) -> str:
    """Return the mark of the processes of a wider fixture; with an empty name, the common prefix of these marks."""
    return f"{os.getpid()} fixture {name}"


def find(mark: str) -> list[MarkedProcess]:
    """Return the running processes whose mark begins with this one, except this process, zombies and multiprocessing's tracker."""
    entry = f"{MARK}={mark}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        with suppress(OSError):  # It has ended, or belongs to another user.
            if not any(each.startswith(entry) for each in Path(f"/proc/{name}/environ").read_bytes().split(b"\0")):
                continue
            command = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if command and "multiprocessing.resource_tracker" not in command:
                found.append(MarkedProcess(int(name), command))
    return found


def kill(found: list[MarkedProcess]) -> None:
    """Kill processes; ignore those that have exited."""
    for process in found:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def is_running(pid: int) -> bool:
    """Return whether a process runs; a zombie does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def parent_of(pid: int) -> int:
    """Return the parent of a process; 0 if the process does not run."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def stack(process: MarkedProcess) -> str:
    """Return the stacks of a process as py-spy sees them, or why there are none."""
    tool = Path(sys.executable).with_name("py-spy")
    command = str(tool) if tool.exists() else shutil.which("py-spy")
    if command is None:
        return "py-spy is not installed"
    arguments = [command, "dump", "--nonblocking", "--pid", str(process.pid)]
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=_PY_SPY_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"py-spy gave no answer within {_PY_SPY_SECONDS:g} s"
    return done.stdout or done.stderr


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Mark the environment while a test runs."""
    os.environ[MARK] = mark_of(item)
    try:
        return (yield)
    finally:
        os.environ.pop(MARK, None)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
    """Give processes of a wider fixture a mark of the fixture: they outlive the test that requests it first."""
    if fixturedef.scope == "function":
        return (yield)
    mark = os.environ.get(MARK)
    os.environ[MARK] = mark_of_fixture(fixturedef.argname)
    try:
        return (yield)
    finally:
        if mark is None:
            del os.environ[MARK]
        else:
            os.environ[MARK] = mark
