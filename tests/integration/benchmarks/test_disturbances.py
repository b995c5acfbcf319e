"""Tests that disturbances of one process that overlap end by themselves: none of them ends another one, with real processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from disturbance.schedule import Disturbance
from disturbance.services import RUNNER, Cluster

from tests.timing import HANG_SECONDS

LONG = 600.0
SHORT = 0.05


class Single(Cluster):
    """A cluster of one process, whose disturbances are carried out at once."""

    def __init__(self, data: Path, process: psutil.Process) -> None:
        super().__init__(data, tcp=False, environment={})
        self.process = process

    def _victim(self, one: Disturbance) -> psutil.Process:
        return self.process

    async def carry_out(self, *plan: Disturbance) -> None:
        await self.disturb(plan, asyncio.Event())

    @property
    def stopped(self) -> bool:
        return self.process.status() == psutil.STATUS_STOPPED


def stop(seconds: float) -> Disturbance:
    return Disturbance(0.0, "stop", RUNNER, seconds)


@pytest.fixture
def single(tmp_path: Path) -> Iterator[Single]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield Single(tmp_path / "data", psutil.Process(process.pid))
        process.kill()


async def comes(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while not condition():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)


async def test_a_stop_lasts_until_the_last_of_two_that_overlap_ends(single: Single) -> None:
    await single.carry_out(stop(SHORT), stop(LONG))
    await comes(lambda: single.pending_ends == 1)
    assert single.stopped
    await single.calm()
    await comes(lambda: not single.stopped)


async def test_a_process_continues_after_its_only_stop(single: Single) -> None:
    await single.carry_out(stop(SHORT), stop(2 * SHORT))
    await comes(lambda: single.pending_ends == 0)
    await comes(lambda: not single.stopped)


async def test_the_end_of_the_stop_of_a_killed_process_disturbs_no_other(single: Single) -> None:
    await single.carry_out(stop(SHORT), Disturbance(0.0, "kill", RUNNER))
    await asyncio.to_thread(os.waitid, os.P_PID, single.process.pid, os.WEXITED | os.WNOWAIT)
    await comes(lambda: single.pending_ends == 0)
    await single.calm()
    assert single.counts.kinds == {"stop runner": 1, "kill runner": 1}
