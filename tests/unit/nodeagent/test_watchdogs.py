"""Tests of what an agent watches in a run from outside: its memory, and the time without a message."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Coroutine
from typing import Any

import pytest

from hopyard_nodeagent.runs.memory import MemoryGuard, used_bytes
from hopyard_nodeagent.runs.watchdogs import LimitExceeded, SilenceGuard, guarded

pytestmark = pytest.mark.quick


class DiedError(Exception):
    """Represents the end of a process."""


class Process:
    """Simulates a process that runs until it is ended."""

    def __init__(self) -> None:
        self.over = asyncio.Event()

    async def end(self) -> None:
        self.over.set()

    async def make(self) -> str:
        await self.over.wait()
        raise DiedError("killed")


async def test_a_run_above_its_limit_is_ended_and_one_below_is_not() -> None:
    used = iter([10, 1024, 1025])
    guard = MemoryGuard(1, 1024, check_seconds=0.0, measure=lambda pid, limit: next(used))
    process = Process()
    with pytest.raises(
        LimitExceeded, match=r"^out of memory: used 1\.0 KiB of its limit of 1\.0 KiB \(resources\.per_job"
    ):
        await guarded(process.make(), [guard], process.end, DiedError)


async def test_what_ends_otherwise_is_told_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    async def done() -> str:
        await asyncio.sleep(0)
        return "done"

    def unreadable(pid: int, limit: int) -> int:
        raise OSError("no /proc here")

    process = Process()
    calm = MemoryGuard(1, 10, check_seconds=0.0, measure=lambda pid, limit: 3)
    assert await guarded(done(), [calm], process.end, DiedError) == "done"
    process.over.set()
    with pytest.raises(DiedError):
        await guarded(process.make(), [calm], process.end, DiedError)
    broken = MemoryGuard(1, 10, check_seconds=0.0, measure=unreadable)

    async def later() -> str:
        while not caplog.records and not broken_has_ended():  # noqa: ASYNC110 (it ends in the loop's own next turns)
            await asyncio.sleep(0)
        return "done"

    def broken_has_ended() -> bool:
        return not any(task.get_name() == "MemoryGuard" for task in asyncio.all_tasks())

    making: Coroutine[Any, Any, str] = later()
    assert await guarded(making, [broken], process.end, DiedError) == "done"
    assert "MemoryGuard could not watch its run" in caplog.text


class Times:
    def __init__(self) -> None:
        self.now = self.heard = 100.0
        self.training = True

    def pass_by(self, guard: SilenceGuard, seconds: int) -> bool:
        for _ in range(seconds):
            self.now += 1.0
            if guard.check():
                return True
        return False


def silence(times: Times) -> SilenceGuard:
    return SilenceGuard(5.0, lambda: times.heard, lambda: times.training, clock=lambda: times.now)


def test_silence_beyond_the_limit_and_the_margin_is_an_excess() -> None:
    times = Times()
    guard = silence(times)
    assert not times.pass_by(guard, 15)
    times.heard = times.now
    assert not times.pass_by(guard, 15)
    assert times.pass_by(guard, 1)
    assert guard.excess.startswith("an iteration took longer than 5 s")


def test_what_does_not_train_yet_may_be_silent() -> None:
    times = Times()
    times.training = False
    guard = silence(times)
    assert not times.pass_by(guard, 100)
    times.training = True
    assert not times.pass_by(guard, 15)
    assert times.pass_by(guard, 1)


def test_an_agent_that_was_stopped_itself_waits_anew() -> None:
    times = Times()
    guard = silence(times)
    times.now += 1000.0
    assert not guard.check()
    assert not times.pass_by(guard, 15)
    assert times.pass_by(guard, 1)


FAMILY = """
import os, signal
held = os.urandom(1 << 20) * 96
child = os.fork()
if not child:
    own = os.urandom(1 << 20) * 64
print(child, flush=True)
signal.pause()
"""


@pytest.mark.merge
def test_memory_is_that_of_the_whole_family_and_what_it_shares_counts_once() -> None:
    mebibyte = 1 << 20
    with subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = next(pid for pid in (int(parent.stdout.readline()), int(parent.stdout.readline())) if pid)
        try:
            assert 64 * mebibyte < used_bytes(child) < 220 * mebibyte
            assert used_bytes(parent.pid, limit=1) > 160 * mebibyte, "the child's own memory counts"
            if sys.platform.startswith("linux"):
                assert used_bytes(parent.pid, limit=1) < 220 * mebibyte, "what both hold counts once"
                assert used_bytes(parent.pid, limit=1 << 40) > 220 * mebibyte, "a quick look is enough below the limit"
        finally:
            os.kill(child, signal.SIGKILL)
            parent.kill()
    assert used_bytes(parent.pid) == 0


ORPHANING = """
import os, sys, time
if os.fork() == 0:
    if os.fork() == 0:
        held = b"x" * 200_000_000
        sys.stdout.write("held\\n"); sys.stdout.flush()
        time.sleep(600)
    os._exit(0)
os.wait()
time.sleep(600)
"""


@pytest.mark.merge
def test_what_a_child_left_behind_counts_too() -> None:
    command = [sys.executable, "-c", ORPHANING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            assert used_bytes(process.pid) > 200_000_000
        finally:
            os.killpg(process.pid, signal.SIGKILL)
