"""Tests of an experiment that accepts requests, over gRPC."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import ExperimentState
from hopyard.errors import Conflict, InvalidInput
from tests.integration.scheduler.conftest import experiment
from tests.timing import HANG_SECONDS, scaled

STUDY = "policy: stage_tree"


def study(folder: Path, idle: str, more: str = STUDY) -> Path:
    """Write an experiment file without jobs of its own and return it."""
    file = experiment(folder, length=20, more=more)
    file.write_text(file.read_text().replace("jobs: 3", f"jobs: 0, idle: {idle}"))
    return file


async def test_it_stays_open_without_a_slot_until_it_is_closed(client: AsyncClient, tmp_path: Path) -> None:
    created = await client.create(study(tmp_path / "e", "10m"))
    first = await client.request(created.id, {"x": 0.5, "pace": 0.0}, 3)
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            open_still, job = await client.get(created.id), await client.job(created.id, first.id)
            rests = open_still.reason.startswith("is open for requests: ends in ")
            if job.state.ended and rests and not open_still.slots:
                break
            await asyncio.sleep(0.02)
    assert open_still.state is ExperimentState.RUNNING
    await client.keep_experiment(created.id)
    again = await client.request(created.id, {"x": 0.5, "pace": 0.0}, 2)
    async with asyncio.timeout(
        HANG_SECONDS
    ):  # The policy may be slow, and statistics are readable a little after the state.
        while len(curve := await client.curve(created.id, again.id)) < 2:  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0.02)
    assert [point.value for point in curve] == [0.5, 1.0]
    await client.close_experiment(created.id)
    closed = await client.wait(created.id, timeout=HANG_SECONDS)
    assert (closed.state, closed.reason) == (ExperimentState.COMPLETED, "closed by its client")
    assert (await client.close_experiment(created.id)).state is ExperimentState.COMPLETED
    with pytest.raises(Conflict, match="closed by its client"):
        await client.keep_experiment(created.id)


async def test_it_ends_by_itself_when_nobody_keeps_it_open(client: AsyncClient, tmp_path: Path) -> None:
    idle = scaled(0.3)
    created = await client.create(study(tmp_path / "e", f"{idle:g}s"))
    ended = await client.wait(created.id, timeout=HANG_SECONDS)
    assert (ended.state, ended.reason) == (ExperimentState.COMPLETED, f"it got no request for {idle:g} s")
    with pytest.raises(InvalidInput, match=r"stop.idle: found 10 s, but policy default serves no requests"):
        await client.create(study(tmp_path / "f", "10s", ""))
