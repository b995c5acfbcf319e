"""Tests of snapshots on a node that the database does not know, because an older one was restored: they stay for a grace."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import ExperimentState
from hopyard_appstat.service import AppStatService
from hopyard_scheduler.storage.garbage_collection import COPIES, UNKNOWN
from tests.integration.scheduler.conftest import experiment
from tests.integration.scheduler.test_deletion import finished
from tests.integration.scheduler.test_garbage_collection import Pieces, counts, until
from tests.timing import HANG_SECONDS

DAYS = 86400.0


async def stop(pieces: Pieces) -> None:
    if pieces.agent is not None:
        await pieces.agent.stop()
    assert pieces.scheduler is not None
    await pieces.scheduler.stop(1)
    await pieces.appstat.stop(1)
    pieces.agent = None


async def start(pieces: Pieces) -> AsyncClient:
    """Start the services and the agent, wait until all snapshots on the node are examined, and return a client."""
    pieces.appstat = AppStatService(data=pieces.data / "appstat")
    await pieces.appstat.start()
    scheduler = await pieces.start_scheduler()
    await pieces.start_agent()
    client = AsyncClient(server=scheduler.address, patience=HANG_SECONDS)

    async def up() -> bool:
        return bool(await client.nodes())

    await until(up)
    await scheduler._copies.examine_all()
    return client


@pytest.fixture
async def pieces(tmp_path: Path) -> AsyncIterator[Pieces]:
    found = Pieces(tmp_path)
    await found.hpgen.start()
    yield found
    await stop(found)
    await found.hpgen.stop(1)


@pytest.fixture
async def newer(pieces: Pieces, tmp_path: Path) -> list[str]:
    """Return the snapshots on a node that were taken after the backup from which its cluster's database was restored.

    One is of an experiment that is not in the backup, and at least one of an experiment that is paused there.
    """
    async with await start(pieces) as client:
        made = await client.create(experiment(tmp_path / "paused", jobs=1, length=60, free=4, slow=0.2))
        await until(lambda: bool(pieces.local()))
        await client.pause(made.id)

        async def paused() -> bool:
            return (await client.get(made.id)).state is ExperimentState.PAUSED

        await until(paused)
    before = set(pieces.local())
    await stop(pieces)
    database = tmp_path / "appstat" / "appstat.sqlite"
    backup = database.read_bytes()
    async with await start(pieces) as client:
        await finished(client, tmp_path / "later", jobs=1)
        await client.resume(made.id)
        since = (await client.jobs(made.id))[0].position

        async def further() -> bool:
            return (await client.jobs(made.id))[0].position > since + 2

        await until(further)
        await client.pause(made.id)
        await until(paused)
    await stop(pieces)
    database.write_bytes(backup)
    newer = sorted(set(pieces.local()) - before)
    assert len(newer) >= 2
    for sha256 in newer:
        os.utime(tmp_path / "agent" / "snapshots" / sha256, (time.time() - 6 * DAYS,) * 2)
    return newer


async def test_a_restored_database_deletes_no_snapshot_that_it_does_not_know_within_the_grace(
    pieces: Pieces, newer: list[str], tmp_path: Path
) -> None:
    async with await start(pieces) as client:
        assert set(newer) <= set(pieces.local())
        assert [one.name for one in await client.experiments()] == ["counting"]
        for sha256 in newer:
            os.utime(tmp_path / "agent" / "snapshots" / sha256, (time.time() - 8 * DAYS,) * 2)
        assert pieces.scheduler is not None
        await pieces.scheduler._copies.examine_all()
        await until(lambda: not set(newer) & set(pieces.local()))


async def test_gc_shows_and_deletes_them_at_once(pieces: Pieces, newer: list[str]) -> None:
    async with await start(pieces) as client:
        shown = counts(await client.collect_garbage(dry_run=True))
        assert shown[UNKNOWN, "n"][0] == 1
        assert shown[COPIES, "n"][0] >= len(newer) - 1
        assert set(newer) <= set(pieces.local())
        await client.collect_garbage()
        await until(lambda: not set(newer) & set(pieces.local()))


async def test_what_was_released_while_the_node_was_away_is_deleted_when_it_returns(
    pieces: Pieces, tmp_path: Path
) -> None:
    async with await start(pieces) as client:
        made = await finished(client, tmp_path / "e", jobs=1)
        (kept,) = (await client.jobs(made.id))[0].snapshots
        assert pieces.agent is not None
        records = {path.name: path.read_bytes() for path in (tmp_path / "agent" / "needs").iterdir()}
        await pieces.agent.stop()
        pieces.agent = None
        await client.delete([made.id])
    assert pieces.local() == [kept.sha256]
    assert records
    await stop(pieces)
    async with await start(pieces):
        await until(lambda: pieces.local() == [])
