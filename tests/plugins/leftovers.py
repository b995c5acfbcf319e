"""Fails a test that leaves processes or files behind."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.plugins import CI_VARIABLE, REPOSITORY, processes
from tests.plugins.tiers import started_process
from tests.timing import scaled

EXIT_SECONDS: Final = 10.0
"""Time that processes get to exit after their test: some exit only when their parent does."""

_before: Final = pytest.StashKey[set[Path]]()
_fixture_processes: set[processes.MarkedProcess] = set()
"""Processes that services of wider fixtures started during tests; they may run until the last test."""

_fixture_files: set[Path] = set()
"""Files created by fixtures of wider scopes; tests may leave them."""

_locked_folders: set[Path] = set()
"""Folders that a service of a wider fixture created and locked during a test; they may stay until the last test."""


def _watched_files() -> set[Path]:
    """Return the entries of the folders in which tests may not leave files: the temporary folder and, in CI, the repository.

    Outside CI, a developer may be editing the repository.
    """
    folders = [Path(tempfile.gettempdir()), *([REPOSITORY] if os.environ.get(CI_VARIABLE) else [])]
    return {Path(entry.path) for folder in folders for entry in os.scandir(folder)}


def pytest_configure(config: pytest.Config) -> None:
    """Create a temporary folder for this process and its children, so that new files can be attributed to tests."""
    # The folder in which pytest creates `tmp_path`.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = tempfile.mkdtemp(prefix="hopyard-tests-")
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(folder, "torchinductor"))
    os.mkdir(os.path.join(folder, "torchinductor"))
    # Services with long paths, and those without a data folder, create their sockets in this folder, which outlives them.
    os.mkdir(os.path.join(folder, f"hopyard-{os.geteuid()}"), 0o700)
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
        files = _watched_files() - before - _fixture_files - _locked_folders
        if _has_module_fixture(item):
            _locked_folders.update(path for path in files if _is_locked(path))
        left = [f"the file {path}" for path in sorted(files - _locked_folders)]
        if started_process():
            left += [f"the process {process}" for process in _remaining(lambda: _of_test(item))]
        if nextitem is None:
            left += [f"the process {process} of a fixture" for process in _remaining(_of_fixtures)]
            left += [f"the folder {path} of a fixture" for path in sorted(_locked_folders) if path.exists()]
        if left:
            pytest.fail(f"the test leaves behind {'; '.join(left)}", pytrace=False)


def _is_locked(path: Path) -> bool:
    """Return whether a running service holds a lock (flock) on a folder."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _of_test(item: pytest.Item) -> list[processes.MarkedProcess]:
    """Return the running processes of a test.

    A service of a module's fixture, such as an agent, may run in this process and start a process during a test. That process
    belongs to the fixture: it is checked after the last test.
    """
    found = processes.find(processes.mark_of(item))
    if _has_module_fixture(item):
        _fixture_processes.update(process for process in found if processes.parent_of(process.pid) == os.getpid())
    return [process for process in found if process not in _fixture_processes]


def _has_module_fixture(item: pytest.Item) -> bool:
    info: Any = getattr(item, "_fixtureinfo", None)
    definitions = [] if info is None else [one for each in info.name2fixturedefs.values() for one in each]
    return any(one.scope in ("class", "module", "package") and _is_ours(one.func) for one in definitions)


def _is_ours(function: Callable[..., Any]) -> bool:
    return function.__module__.split(".")[0] not in ("_pytest", "pytest_asyncio", "xdist")


def _of_fixtures() -> list[processes.MarkedProcess]:
    """Return the running processes of fixtures of wider scopes."""
    left = [process for process in _fixture_processes if processes.is_running(process.pid)]
    return left + processes.find(processes.mark_of_fixture(""))


def _remaining(find: Callable[[], list[processes.MarkedProcess]]) -> list[processes.MarkedProcess]:
    """Wait for processes to exit; kill and return the rest."""
    end = time.monotonic() + scaled(EXIT_SECONDS)
    while (found := find()) and time.monotonic() < end:
        time.sleep(0.02)
    remaining = found
    while remaining:  # A process may have started another one since it was listed.
        processes.kill(remaining)
        time.sleep(0.02)
        remaining = find()
    return found
