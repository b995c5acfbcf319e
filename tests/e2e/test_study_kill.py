"""Test of a study whose scheduler is killed: each request is made once and trained once."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.study import AsyncStudy
from hopyard_engine.core.events import Operated
from tests.e2e.units import journal
from tests.e2e.up import IS_UP, Up
from tests.integration.scheduler.conftest import TRAINER
from tests.timing import HANG_SECONDS, scaled

PACE, LENGTH = 0.05, 20
IDLE, EVERY = scaled(100.0), 0.3
"""Seconds that the study may be idle, and between two messages of its client that keep it open: many more than it needs."""


async def kept(server: str, experiment: str) -> int:
    """Return how often an idle study was kept open so far."""
    return sum(isinstance(event, Operated) and event.action == "keep" for event in await journal(server, experiment))


@pytest.mark.timeout(400)
async def test_evaluations_are_answered_over_a_kill_of_the_scheduler(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(TRAINER)
    up = Up(tmp_path / "data")
    try:
        await asyncio.to_thread(up.wait_for, IS_UP)
        server = up.server
        async with AsyncClient(server, patience=HANG_SECONDS) as client:
            async with await AsyncStudy(client, sleep=lambda seconds: asyncio.sleep(min(seconds, EVERY))).create(
                folder=tmp_path / "code",
                trainer="train.py:Counter",
                metric={"name": "accuracy", "mode": "max"},
                space={"x": {"uniform": [0.0, 1.0]}, "pace": PACE},
                stop={"max_iterations": LENGTH},
                idle=IDLE,
            ) as study:
                name = study.experiment.id
                wanted = [(x / 4, position) for x in range(1, 4) for position in (LENGTH // 2, LENGTH)]
                started = [study.start({"x": x, "pace": PACE}, position) for x, position in wanted]
                async for _ in client.watch(study.experiment):
                    if sum(job.position for job in await client.jobs(study.experiment)) > LENGTH // 2:
                        break
                os.kill(up.pids["scheduler"], signal.SIGKILL)
                later = study.start({"x": 1.0, "pace": PACE}, 2)  # Requested while there is no scheduler.
                found = await study.wait_all([*started, later])
                assert [answer.value for answer in found] == [x * position for x, position in [*wanted, (1.0, 2)]]
                assert [len(answer.curve) for answer in found] == [position for _, position in [*wanted, (1.0, 2)]]
                assert len(await client.jobs(study.experiment)) == len(wanted) + 1
                assert len(await client.statistics(study.experiment)) == 3 * LENGTH + 2
                before = await kept(server, name)
                async with asyncio.timeout(HANG_SECONDS):
                    while await kept(server, name) == before:  # noqa: ASYNC110 - another process
                        await asyncio.sleep(0.1)
                assert (await study.eval({"x": 0.25, "pace": PACE}, 3)).value == 0.75
            assert (await client.wait(name, timeout=HANG_SECONDS)).reason == "closed by its client"
    finally:
        await asyncio.to_thread(up.stop)
    assert up.restarted == {"scheduler"}
