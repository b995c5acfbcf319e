"""Tests of a policy process whose experiment ends while the process starts."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hopyard._runtime.bundle import pack
from hopyard._runtime.processes.process_family import ProcessFamily
from hopyard.errors import InvalidInput
from hopyard.policy.vocabulary import StreamId
from hopyard_scheduler.policy_process import spawn
from hopyard_scheduler.policy_process.connections import PolicyConnection
from hopyard_scheduler.policy_process.folders import PolicyFolders
from hopyard_scheduler.policy_process.spawn import Invocation, SpawnedPolicy

pytestmark = pytest.mark.quick


class Process:
    """Simulates a process that runs until it is ended."""

    def __init__(self) -> None:
        self.pid = 2**22 + 1  # larger than any number of a process
        self.returncode: int | None = None
        self._ended = asyncio.Event()

    def end(self) -> None:
        self.returncode = -signal.SIGTERM
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode


class Start:
    """Simulates the start of a process, which stops at one of its steps until the test opens `gate`.

    Args:
        folder: Receives the files of the experiment and of the process.
        stands_at: The step: "fetch", "begin", "start" or "accept".
    """

    ready = "started"
    label = "the process"
    broken = False
    closed = False

    def close(self) -> None:
        self.closed = True

    def __init__(self, folder: Path, stands_at: str) -> None:
        code = folder / "experiment"
        code.mkdir()
        (code / "train.py").touch()
        self.bundle = pack(code)
        self.folder = folder / "files"
        self.folder.mkdir()
        self.stands_at, self.reached, self.gate = stands_at, asyncio.Event(), asyncio.Event()
        self.inherits, self.ends_on_signal = False, True
        self.signals: list[int] = []
        self.processes: list[Process] = []
        self.policy = SpawnedPolicy(self, self.fetch, self.bundle.sha256, PolicyFolders(self.folder))

    async def step(self, name: str) -> None:
        if name == self.stands_at:
            self.reached.set()
            await self.gate.wait()

    async def fetch(self) -> bytes:
        await self.step("fetch")
        return self.bundle.data

    async def begin(self, code: Path) -> Invocation:
        await self.step("begin")
        self.inherits = True
        return Invocation(("program",))

    async def start(self, *arguments: str, **_: Any) -> Process:
        await self.step("start")
        self.processes.append(Process())
        return self.processes[-1]

    def started(self) -> None:
        self.inherits = False

    async def accept(self, experiment: str) -> PolicyConnection:
        await self.step("accept")
        raise AssertionError("nobody comes")

    def give_back(self, connection: PolicyConnection) -> None:
        raise AssertionError("nobody came")

    def kill(self, pid: int, number: int) -> None:
        self.signals.append(number)
        for process in self.processes:
            if self.ends_on_signal:
                process.end()


@pytest.fixture
async def start(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Start]:
    made = Start(tmp_path, request.param)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", made.start)
    monkeypatch.setattr(os, "killpg", made.kill)
    yield made
    await made.policy.close()


@pytest.mark.parametrize("start", ["fetch", "begin", "start", "accept"], indirect=True)
async def test_no_process_runs_once_it_is_closed(start: Start) -> None:
    taking = asyncio.create_task(start.policy.take(StreamId("x")))
    await start.reached.wait()
    closing = asyncio.create_task(start.policy.close())
    await asyncio.sleep(0)
    if start.stands_at != "accept":  # else the process never connects
        start.gate.set()
    await closing
    with pytest.raises(InvalidInput, match="its experiment needs no process any more"):
        await taking
    assert all(process.returncode is not None for process in start.processes)
    assert len(start.processes) == (1 if start.stands_at in ("start", "accept") else 0)
    assert not start.inherits
    assert [list(folder.iterdir()) for folder in start.folder.iterdir()] == [[]]
    with pytest.raises(InvalidInput, match="needs no process any more"):
        await start.policy.take(StreamId("x"))
    assert start.policy.pid is None


@pytest.mark.parametrize("start", ["fetch"], indirect=True)
async def test_a_start_that_nobody_waits_for_leaves_nothing(start: Start) -> None:
    taking = asyncio.create_task(start.policy.take(StreamId("x")))
    await start.reached.wait()
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert start.processes == []
    assert [list(folder.iterdir()) for folder in start.folder.iterdir()] == [[]]


@pytest.mark.parametrize("start", ["accept"], indirect=True)
async def test_who_closes_it_a_second_time_waits_for_the_end_of_the_process_too(start: Start) -> None:
    taking = asyncio.create_task(start.policy.take(StreamId("x")))
    await start.reached.wait()
    start.ends_on_signal = False
    closing = [asyncio.create_task(start.policy.close()) for _ in range(2)]
    while not start.signals:  # noqa: ASYNC110 - the next turns of the event loop
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not any(one.done() for one in closing)
    start.processes[0].end()
    await asyncio.gather(*closing)
    with pytest.raises(InvalidInput):
        await taking


@pytest.mark.parametrize("start", ["accept"], indirect=True)
async def test_what_a_process_prints_takes_no_more_than_it_may(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawn, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(spawn, "MOST_OUTPUT_BYTES", 10)
    taking = asyncio.create_task(start.policy.take(StreamId("x")))
    await start.reached.wait()
    (output,) = start.folder.glob("*/*/output.log")
    with output.open("ab") as printed:
        printed.write(b"0123456789")
        printed.flush()
        await asyncio.wait({taking}, timeout=0.01)
        assert output.read_bytes() == b"0123456789"
        printed.write(b"a")
        printed.flush()
        while output.stat().st_size:
            await asyncio.wait({taking}, timeout=0.001)
        printed.write(b"b")
        printed.flush()
        assert output.read_bytes() == b"b"
    await start.policy.close()
    with pytest.raises(InvalidInput, match="its experiment needs no process any more"):
        await taking


@pytest.mark.parametrize("start", ["accept"], indirect=True)
async def test_the_limits_of_a_process_are_examined_in_a_thread(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def excess(pid: int) -> str:
        threads.append(threading.current_thread())
        return "it has started too many processes"

    def kill(family: ProcessFamily) -> None:
        threads.append(threading.current_thread())
        loop.call_soon_threadsafe(start.processes[0].end)

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(spawn, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(spawn, "MOST_TRIES", 1)
    monkeypatch.setattr(spawn, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(ProcessFamily, "kill", kill)
    start.policy._limits = cast("Any", SimpleNamespace(excess=excess))
    with pytest.raises(InvalidInput, match="it has started too many processes"):
        await start.policy.take(StreamId("x"))
    assert len(threads) == 2
    assert threading.main_thread() not in threads


@pytest.mark.parametrize("start", ["start"], indirect=True)
async def test_a_process_that_cannot_be_started_is_refused_with_the_reason(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: str, **__: Any) -> Process:
        raise OSError(errno.ENOSPC, "No space left on device", "/there")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", full)
    with pytest.raises(
        InvalidInput, match=r"the process cannot be started: /there: No space left on device; make room"
    ):
        await start.policy.take(StreamId("x"))
    assert not start.inherits


def edit(code: Path) -> None:
    (code / "train.py").chmod(0o600)
    (code / "train.py").write_text("edited")


@pytest.mark.parametrize("harm", [shutil.rmtree, edit, lambda code: (code / "random.py").touch()])
@pytest.mark.parametrize("start", [""], indirect=True)
async def test_a_process_whose_files_are_gone_or_changed_gets_new_ones(
    start: Start, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], object]
) -> None:
    monkeypatch.setattr(spawn, "PAUSE_SECONDS", 0.0)
    folders: list[Path] = []

    async def begin(*_: str, cwd: Path, **__: Any) -> Process:
        folders.append(cwd)
        assert os.listdir(cwd) == ["train.py"]
        assert (cwd / "train.py").read_text() != "edited"
        harm(cwd)
        process = Process()
        process.end()
        return process

    async def accept(experiment: str) -> PolicyConnection:
        await asyncio.Event().wait()
        raise AssertionError("nobody comes")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", begin)
    monkeypatch.setattr(start, "accept", accept)
    with pytest.raises(InvalidInput, match="the process ended with"):
        await start.policy.take(StreamId("x"))
    assert len(set(folders)) == spawn.MOST_TRIES
    await start.policy.close()
    assert [list(folder.iterdir()) for folder in start.folder.iterdir()] == [[]]
