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

from tests.plugins import CI_VARIABLE, REPOSITORY, processes
from tests.plugins.tiers import started_process
from tests.timing import scaled

EXIT_SECONDS: Final = 10.0
"""Time that processes get to exit after their test: some exit only when their parent does."""

_before: Final = pytest.StashKey[set[Path]]()
_fixture_files: set[Path] = set()
"""Files created by fixtures of wider scopes; tests may leave them."""


def _watched_files() -> set[Path]:
    """Return the entries of the folders in which tests may not leave files: the temporary folder and, in CI, the repository.

    Outside CI, a developer may be editing the repository.
    """
    folders = [Path(tempfile.gettempdir()), *([REPOSITORY] if os.environ.get(CI_VARIABLE) else [])]
    return {Path(entry.path) for folder in folders for entry in os.scandir(folder)}


def pytest_configure(config: pytest.Config) -> None:
    """Give this process and its children a temporary folder of their own, so that new files can be attributed to tests."""
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # where pytest keeps `tmp_path`
    folder = tempfile.mkdtemp(prefix="hopyard-tests-")
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(folder, "torchinductor"))
    os.mkdir(os.path.join(folder, "torchinductor"))
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Record the existing files before the test."""
    item.stash[_before] = _watched_files()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
    """Attribute files created in the setup of a wider fixture to the fixture, not to the test."""
    before = set() if fixturedef.scope == "function" else _watched_files()
    try:
        return (yield)
    finally:
        if fixturedef.scope != "function":
            _fixture_files.update(_watched_files() - before)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """Fail the test if it leaves files or processes; after the last test, also if fixtures of wider scopes do."""
    try:
        return (yield)
    finally:
        before: set[Path] = item.stash[_before]
        left = [f"the file {path}" for path in sorted(_watched_files() - before - _fixture_files)]
        if started_process():
            left += [f"the process {process}" for process in _remaining(processes.mark_of(item))]
        if nextitem is None:
            left += [f"the process {process} of a fixture" for process in _remaining(processes.mark_of_fixture(""))]
        if left:
            pytest.fail(f"the test leaves behind {'; '.join(left)}", pytrace=False)


def _remaining(mark: str) -> list[processes.MarkedProcess]:
    """Wait for the processes of a test to exit; kill and return the rest."""
    end = time.monotonic() + scaled(EXIT_SECONDS)
    while (found := processes.find(mark)) and time.monotonic() < end:
        time.sleep(0.02)
    remaining = found
    while remaining:  # A process may have started another one since it was listed.
        processes.kill(remaining)
        time.sleep(0.02)
        remaining = processes.find(mark)
    return found
