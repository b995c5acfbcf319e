"""Fails a test that leaves processes or files behind."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.plugins import processes
from tests.plugins.tiers import started_process
from tests.timing import scaled

REPOSITORY: Final = Path(__file__).parents[2]
END_SECONDS: Final = 10.0
"""How long processes may take to end after their test: some end because their parent has."""

_before: Final = pytest.StashKey[set[Path]]()
_FIXTURES_LEAVE: set[Path] = set()
"""What fixtures of wider scopes have made; it may stay."""


def _watched() -> set[Path]:
    """Return what lies in the folders into which no test may write: the temporary folder and, in CI, the repository.

    Elsewhere a person may be writing in the repository.
    """
    folders = [Path(tempfile.gettempdir()), *([REPOSITORY] if os.environ.get("HOPYARD_CI") else [])]
    return {Path(entry.path) for folder in folders for entry in os.scandir(folder)}


def pytest_configure(config: pytest.Config) -> None:
    """Give this process, and what it starts, a temporary folder that it can watch."""
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # where pytest keeps `tmp_path`
    folder = tempfile.mkdtemp(prefix="hopyard-tests-")
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(folder, "torchinductor"))
    os.mkdir(os.path.join(folder, "torchinductor"))
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Remember what lay there before the test."""
    item.stash[_before] = _watched()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
    """Leave files of fixtures of wider scopes to these."""
    before = set() if fixturedef.scope == "function" else _watched()
    try:
        return (yield)
    finally:
        if fixturedef.scope != "function":
            _FIXTURES_LEAVE.update(_watched() - before)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Look for what is left."""
    try:
        return (yield)
    finally:
        before: set[Path] = item.stash[_before]
        left = [f"the file {path}" for path in sorted(_watched() - before - _FIXTURES_LEAVE)]
        if started_process():
            left += [f"the process {process}" for process in _remaining(processes.mark_of(item))]
        if left:
            pytest.fail(f"{item.nodeid} leaves behind {'; '.join(left)}", pytrace=False)


def _remaining(mark: str) -> list[processes.Found]:
    """Return the processes of a test that do not end, and kill them."""
    end = time.monotonic() + scaled(END_SECONDS)
    while (found := processes.find(mark)) and time.monotonic() < end:
        time.sleep(0.02)
    processes.kill(found)
    while processes.find(mark):
        time.sleep(0.02)
    return found
