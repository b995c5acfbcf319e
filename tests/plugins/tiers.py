"""Test tiers by measured cost.

Each test belongs to one tier:

* `quick`: pure and in-process. At most 0.2 s of CPU time, no socket, no process, no sleep; what exceeds that fails.
  `quick(merge=["test_a"])` on a class puts the inherited test `test_a` into the tier `merge`.
* `merge`: no marker. Guards a merge: real services, processes and databases, one path for each feature.
* `nightly`: everything else, such as long simulations and further variants.

The marker closest to the test counts: on a parameter or a function before its class, on a class before its module. Of two
markers at one level the more expensive tier counts.
"""

from __future__ import annotations

import asyncio
import asyncio.tasks
import gc
import importlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Final, cast

import pytest

from tests.plugins.machine import cpu_slowness
from tests.timing import stretch

TIERS: Final = ("quick", "merge", "nightly")
QUICK_CPU_SECONDS: Final = 0.2
"""CPU time that a quick test may use, set-up and teardown included, on the reference machine."""

_FORBIDDEN: Final = {
    "socket.bind": "opens a socket",
    "socket.connect": "opens a socket",
    "subprocess.Popen": "starts a process",
    "os.fork": "starts a process",
    "os.forkpty": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.system": "starts a process",
}
"""Audit events of the interpreter, and what each means."""

_seen: set[str] = set()
"""What the test that runs now has done."""


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
    """Return whether the test that runs now has started a process."""
    return "starts a process" in _seen


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
    for tier in wanted(config):
        if tier not in TIERS:
            raise pytest.UsageError(f"--tier: there is no tier {tier!r}; there are {', '.join(TIERS)}")


def wanted(config: pytest.Config) -> list[str]:
    """Return the tiers that this run is for."""
    return cast(str, config.getoption("--tier")).split(",")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import test modules without a quick test in a run of quick tests: imports would take most of its time."""
    if wanted(config) != ["quick"] or collection_path.suffix != ".py":
        return None
    return True if "mark.quick" not in collection_path.read_text() else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the selected tiers."""
    tiers = set(wanted(config))
    deselected = [item for item in items if tier_of(item) not in tiers]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if tier_of(item) in tiers]


def pytest_collection_finish() -> None:
    """Keep what was imported out of garbage collections, whose cost would be charged to whichever test triggers them."""
    gc.collect()
    gc.freeze()


# --------------------------------------------------------------------------------------------------------------- budget


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if (meaning := _FORBIDDEN.get(event)) is not None:
        _seen.add(meaning)


def _watched(original: Callable[..., Any], meaning: str, counts: Callable[..., bool]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        if counts(*arguments):
            _seen.add(meaning)
        return original(*arguments, **options)

    return call


_uncharged_seconds = 0.0
"""CPU time of imports and of garbage collections since the process began: the test in which they fall is not their cause."""


def _watch_imports() -> None:
    """Measure imports of modules that have not been imported yet."""
    bootstrap: Any = importlib._bootstrap
    find_and_load, depth = bootstrap._find_and_load, 0

    def measured(*arguments: Any) -> Any:
        global _uncharged_seconds
        nonlocal depth
        if depth:
            return find_and_load(*arguments)
        depth, begin = 1, time.process_time()
        try:
            return find_and_load(*arguments)
        finally:
            _uncharged_seconds += time.process_time() - begin
            depth = 0

    bootstrap._find_and_load = measured


def _watch_collections() -> None:
    """Measure garbage collections."""
    begun = 0.0

    def collects(phase: str, _: dict[str, int]) -> None:
        global _uncharged_seconds
        nonlocal begun
        if phase == "start":
            begun = time.process_time()
        else:
            _uncharged_seconds += time.process_time() - begun

    gc.callbacks.append(collects)


def _watch_libraries() -> None:
    """Watch what raises no audit event: sleeps, and gRPC's channels and servers, which are C++."""
    from grpc import _channel, _server
    from grpc.aio import _channel as _aio_channel
    from grpc.aio import _server as _aio_server

    time.sleep = _watched(time.sleep, "sleeps", lambda seconds: seconds > 0)
    sleep = _watched(asyncio.sleep, "sleeps", lambda delay, *_: delay > 0)
    for module in (asyncio, asyncio.tasks):
        module.sleep = sleep  # type: ignore[attr-defined]
    classes: list[Any] = [_channel.Channel, _server._Server, _aio_channel.Channel, _aio_server.Server]
    for each in classes:
        each.__init__ = _watched(each.__init__, "opens a socket", lambda *_: True)


sys.addaudithook(_audit)
_watch_libraries()
_watch_imports()
_watch_collections()

_begun = pytest.StashKey[float]()
_costs: list[tuple[str, str, float]] = []


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Begin to count what a test costs and does."""
    _seen.clear()
    item.stash[_begun] = time.process_time() - _uncharged_seconds
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Fail a quick test that is not quick."""
    try:
        return (yield)
    finally:
        used = time.process_time() - _uncharged_seconds - item.stash[_begun]
        item.user_properties.append(("cpu_seconds", round(used, 4)))
        if tier_of(item) == "quick":
            _check(item, used)


def _check(item: pytest.Item, used: float) -> None:
    faults = sorted(_seen)
    # Beside tests with servers in the same process, threads that these leave are charged too.
    if used > QUICK_CPU_SECONDS and wanted(item.config) == ["quick"]:
        allowed = QUICK_CPU_SECONDS * max(cpu_slowness(), stretch())
        if used > allowed:
            faults.append(f"uses {used:.2f} s of CPU time where {allowed:.2f} s are allowed")
    if faults:
        pytest.fail(
            f"{item.nodeid} is marked quick but {' and '.join(faults)}: mark it merge or nightly, or make it cheaper",
            pytrace=False,
        )


# --------------------------------------------------------------------------------------------------------------- summary


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests ran and what CPU time their own process took."""
    reports = list(_teardowns(terminalreporter))
    properties = (dict(report.user_properties) for report in reports)
    seconds = sum(float(str(each.get("cpu_seconds", 0))) for each in properties)
    outcomes = Counter(name for name in ("failed", "error") for _ in terminalreporter.stats.get(name, ()))
    terminalreporter.write_line(
        f"{len(reports)} tests, {seconds:.0f} s of CPU time in pytest itself, {sum(outcomes.values())} failures"
    )


def _teardowns(terminalreporter: pytest.TerminalReporter) -> Iterator[pytest.TestReport]:
    for reports in terminalreporter.stats.values():
        yield from (each for each in reports if isinstance(each, pytest.TestReport) and each.when == "teardown")
