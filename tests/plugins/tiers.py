"""Test tiers by measured cost.

Each test belongs to one tier:

* `quick`: pure and in-process. At most 0.2 s of CPU time, no socket, no process, no sleep; the limits are enforced.
  `quick(merge=["test_a"])` on a class puts the inherited test `test_a` into the tier `merge`.
* `merge`: the default. Guards a merge: real services, processes and databases, one path for each feature.
* `nightly`: everything else, such as long simulations and further variants.

The marker closest to the test applies: on a parameter or a function before its class, on a class before its module. Of two
markers at one level the more expensive tier applies.
"""

from __future__ import annotations

import asyncio
import asyncio.tasks
import functools
import gc
import importlib
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Final, cast

import pytest

from tests.plugins import REPOSITORY
from tests.plugins.machine import cpu_slowness
from tests.timing import stretch

TIERS: Final = ("quick", "merge", "nightly")
QUICK_CPU_SECONDS: Final = 0.2
"""CPU time that a quick test may use, set-up and teardown included, on the reference machine."""

_PLUGINS: Final = Path(__file__).parent
_FORBIDDEN: Final = {
    "socket.bind": "opens a socket",
    "socket.connect": "opens a socket",
    "socket.sendto": "opens a socket",
    "socket.sendmsg": "opens a socket",
    "subprocess.Popen": "starts a process",
    "os.fork": "starts a process",
    "os.forkpty": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.system": "starts a process",
}
"""Audit events of the interpreter, and what each means."""

_violations: dict[str, str] = {}
"""Forbidden actions of the running test, each with the place in the repository that it was called from."""


def tier_of(item: pytest.Item) -> str:
    """Return the tier of a test."""
    name = getattr(item, "originalname", item.name)
    for node in reversed(item.listchain()):
        named = {
            "merge" if name in mark.kwargs.get("merge", ()) else mark.name
            for mark in node.own_markers
            if mark.name in TIERS
        }
        if named:
            return max(named, key=TIERS.index)
    return "merge"


def started_process() -> bool:
    """Return whether the running test has started a process."""
    return "starts a process" in _violations


# ------------------------------------------------------------------------------------------------------------ selection


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that selects tiers."""
    parser.addoption(
        "--tier",
        default=",".join(TIERS),
        help="run the tests of these tiers only, separated by commas: quick, merge, nightly (default: all)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse an unknown tier."""
    for tier in selected_tiers(config):
        if tier not in TIERS:
            raise pytest.UsageError(f"--tier: there is no tier {tier!r}; there are {', '.join(TIERS)}")


def selected_tiers(config: pytest.Config) -> list[str]:
    """Return the tiers that this run selects."""
    return cast(str, config.getoption("--tier")).split(",")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip modules without a quick test in a quick run, because importing them would take most of its time."""
    if selected_tiers(config) != ["quick"] or collection_path.suffix != ".py":
        return None
    return True if "mark.quick" not in collection_path.read_text() else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the selected tiers."""
    tiers = set(selected_tiers(config))
    deselected = [item for item in items if tier_of(item) not in tiers]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if tier_of(item) in tiers]


def pytest_collection_finish() -> None:
    """Freeze imported objects, so that no test is charged for collecting them."""
    gc.collect()
    gc.freeze()


# --------------------------------------------------------------------------------------------------------------- budget


def _violate(meaning: str) -> None:
    if meaning not in _violations:
        frame = sys._getframe(2)
        while frame.f_back is not None and not _is_own(frame.f_code.co_filename):
            frame = frame.f_back
        path = Path(frame.f_code.co_filename)
        place = path.relative_to(REPOSITORY) if path.is_relative_to(REPOSITORY) else path.name
        _violations[meaning] = f"{place}:{frame.f_lineno}"


def _is_own(file: str) -> bool:
    """Return whether a file is part of the repository, libraries and the plugins excluded."""
    return file.startswith(str(REPOSITORY)) and "site-packages" not in file and not file.startswith(str(_PLUGINS))


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if (meaning := _FORBIDDEN.get(event)) is not None:
        _violate(meaning)


def _watch(original: Callable[..., Any], meaning: str, counts: Callable[..., bool]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*arguments: Any, **options: Any) -> Any:
        if counts(*arguments, **options):
            _violate(meaning)
        return original(*arguments, **options)

    return call


_excluded_cpu_seconds = 0.0
"""CPU time of imports and garbage collections in this process. It is not charged to tests."""


def _watch_imports() -> None:
    """Measure imports of modules that have not been imported yet."""
    bootstrap: Any = importlib._bootstrap
    find_and_load, depth = bootstrap._find_and_load, 0

    def measured(*arguments: Any) -> Any:
        global _excluded_cpu_seconds
        nonlocal depth
        if depth:
            return find_and_load(*arguments)
        depth, begin = 1, time.process_time()
        try:
            return find_and_load(*arguments)
        finally:
            _excluded_cpu_seconds += time.process_time() - begin
            depth = 0

    bootstrap._find_and_load = measured


def _watch_collections() -> None:
    """Measure garbage collections."""
    begun = 0.0

    def collects(phase: str, _: dict[str, int]) -> None:
        global _excluded_cpu_seconds
        nonlocal begun
        if phase == "start":
            begun = time.process_time()
        else:
            _excluded_cpu_seconds += time.process_time() - begun

    gc.callbacks.append(collects)


def _watch_libraries() -> None:
    """Watch calls that raise no audit event: sleeps, multiprocessing's `spawn`, and gRPC channels and servers (C++)."""
    from multiprocessing import util

    from grpc import _channel, _server
    from grpc.aio import _channel as _aio_channel
    from grpc.aio import _server as _aio_server

    time.sleep = _watch(time.sleep, "sleeps", lambda seconds: seconds > 0)
    sleep = _watch(asyncio.sleep, "sleeps", lambda delay, *_, **__: delay > 0)
    for module in (asyncio, asyncio.tasks):
        module.sleep = sleep  # type: ignore[attr-defined]
    classes: list[Any] = [_channel.Channel, _server._Server, _aio_channel.Channel, _aio_server.Server]
    for each in classes:
        each.__init__ = _watch(each.__init__, "opens a socket", lambda *_, **__: True)
    spawn: Any = util
    spawn.spawnv_passfds = _watch(spawn.spawnv_passfds, "starts a process", lambda *_: True)


sys.addaudithook(_audit)
_watch_libraries()
_watch_imports()
_watch_collections()

_begun = pytest.StashKey[float]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Start to measure the CPU time of the test."""
    _violations.clear()
    item.stash[_begun] = time.process_time() - _excluded_cpu_seconds
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Fail a quick test that breaks the limits of its tier."""
    try:
        return (yield)
    finally:
        used = time.process_time() - _excluded_cpu_seconds - item.stash[_begun]
        item.user_properties.append(("cpu_seconds", round(used, 4)))
        if tier_of(item) == "quick":
            _check(item, used)


def _check(item: pytest.Item, used: float) -> None:
    faults = [f"{action} ({place})" for action, place in sorted(_violations.items())]
    # Only in a run of quick tests alone: threads that an integration test leaves in this process would be charged to a quick test.
    if used > QUICK_CPU_SECONDS and selected_tiers(item.config) == ["quick"]:
        allowed = QUICK_CPU_SECONDS * max(cpu_slowness(), stretch())
        if used > allowed:
            faults.append(f"uses {used:.2f} s of CPU time, allowed are {allowed:.2f} s")
    if faults:
        pytest.fail(
            f"a quick test {' and '.join(faults)}: mark it merge or nightly, or remove the cause (CONTRIBUTING.md, Tiers)",
            pytrace=False,
        )


# --------------------------------------------------------------------------------------------------------------- summary


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report the number of tests and the CPU time of their processes."""
    reports = list(_teardowns(terminalreporter))
    properties = (dict(report.user_properties) for report in reports)
    seconds = sum(float(str(each.get("cpu_seconds", 0))) for each in properties)
    failures = sum(len(terminalreporter.stats.get(name, ())) for name in ("failed", "error"))
    terminalreporter.write_line(
        f"{len(reports)} tests, {seconds:.0f} s of CPU time in pytest itself, {failures} failures"
    )


def _teardowns(terminalreporter: pytest.TerminalReporter) -> Iterator[pytest.TestReport]:
    for reports in terminalreporter.stats.values():
        yield from (each for each in reports if isinstance(each, pytest.TestReport) and each.when == "teardown")
