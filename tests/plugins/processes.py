"""Finds the processes that a test has started, wherever their parents are: by a mark in their environment."""

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

MARK: Final = "HOPYARD_TEST_MARK"
"""Environment variable that names the test, or the fixture of a wider scope, that a process was started for."""

_PY_SPY_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Found:
    """A process that was started for a test.

    Attributes:
        pid: its process id.
        command: its command line.
    """

    pid: int
    command: str

    def __str__(self) -> str:
        """Return both, the command shortened."""
        return f"{self.pid}: {self.command[:160]}"


def mark_of(item: pytest.Item) -> str:
    """Return the mark of the processes of a test."""
    return f"{os.getpid()} {item.nodeid}"


def find(mark: str) -> list[Found]:
    """Return the running processes with this mark, this one excluded; zombies do not count."""
    entry = f"{MARK}={mark}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        with suppress(OSError):  # it has ended, or belongs to somebody else
            if entry not in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                continue
            command = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if command:
                found.append(Found(int(name), command))
    return found


def kill(found: list[Found]) -> None:
    """Kill processes; those that have ended are passed over."""
    for process in found:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def stack(process: Found) -> str:
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
    """Mark what a fixture of a wider scope starts as the fixture's: it outlives the test that asks for it first."""
    if fixturedef.scope == "function":
        return (yield)
    mark = os.environ.get(MARK)
    os.environ[MARK] = f"{os.getpid()} fixture {fixturedef.argname}"
    try:
        return (yield)
    finally:
        if mark is None:
            del os.environ[MARK]
        else:
            os.environ[MARK] = mark
