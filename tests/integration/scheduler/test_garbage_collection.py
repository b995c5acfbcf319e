"""Tests of garbage collection while experiments run: it deletes only what no running or finished experiment needs."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hopyard._net.rpc.values import report_from_proto
from hopyard.client import AsyncClient
from hopyard.client.local_cluster.embedded import EmbeddedCluster
from hopyard.client.types import ExperimentState, Garbage, JobState, StoreUse
from hopyard.policy.vocabulary import Report
from hopyard.v1 import appstat_pb2, appstat_pb2_grpc, common_pb2
from hopyard_appstat.service import AppStatService
from hopyard_hpgen.service import HpgenService
from hopyard_nodeagent.agent import NodeAgent
from hopyard_nodeagent.settings import AgentSettings, SlotSettings
from hopyard_nodeagent.snapshots import disk, uploads
from hopyard_scheduler import converters
from hopyard_scheduler.service import SchedulerService
from hopyard_scheduler.storage import garbage_collection
from tests.access import channel_as
from tests.integration.scheduler.conftest import TRAINER, experiment, let_go
from tests.timing import HANG_SECONDS, scaled


class Pieces:
    """Services, an agent with one slot, and a stub of AppStat."""

    def __init__(self, data: Path, max_blob_bytes: int = 1 << 30) -> None:
        self.data = data
        self.appstat = AppStatService(data=data / "appstat", max_blob_bytes=max_blob_bytes)
        self.hpgen = HpgenService()
        self.scheduler: SchedulerService | None = None
        self.agent: NodeAgent | None = None

    async def start_scheduler(self, store_quota: int | None = None) -> SchedulerService:
        made = SchedulerService(
            appstat=self.appstat.address,
            hpgen=self.hpgen.address,
            data=self.data / "scheduler",
            store_quota=store_quota,
        )
        await made.start()
        self.scheduler = made
        return made

    async def start_agent(self, quota: int | None = None) -> None:
        assert self.scheduler is not None
        slots = (SlotSettings(id="n/0", cpus=1),)
        settings = AgentSettings(
            node="n",
            scheduler=self.scheduler.address,
            data=self.data / "agent",
            slots=slots,
            snapshot_quota=quota,
        )
        self.agent = NodeAgent(settings)
        await self.agent.start()

    def local(self) -> list[str]:
        """Return the snapshots on the agent's disk, without those that a thread is deleting: these have hidden names."""
        return sorted(path.name for path in (self.data / "agent" / "snapshots").glob("[!.]*"))

    def stored(self) -> list[str]:
        return sorted(path.name for path in (self.data / "appstat" / "store").glob("*/*"))


@pytest.fixture
async def pieces(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Pieces]:
    found = Pieces(tmp_path, **getattr(request, "param", {}))
    await found.appstat.start()
    await found.hpgen.start()
    await found.start_scheduler()
    try:
        yield found
    finally:
        if found.agent is not None:
            await found.agent.stop()
        assert found.scheduler is not None
        await found.scheduler.stop(1)
        await found.hpgen.stop(1)
        await found.appstat.stop(1)


@pytest.fixture
async def client(pieces: Pieces) -> AsyncIterator[AsyncClient]:
    assert pieces.scheduler is not None
    async with AsyncClient(server=pieces.scheduler.address, patience=HANG_SECONDS) as found:
        yield found


async def until(holds: Callable[[], bool | Awaitable[bool]]) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            found = holds()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.05)


async def put(pieces: Pieces, data: bytes, owner: str) -> str:
    sha256 = hashlib.sha256(data).hexdigest()
    async with channel_as("service", pieces.appstat.address) as link:
        stub: appstat_pb2_grpc.AppStatServiceAsyncStub = appstat_pb2_grpc.AppStatServiceStub(link)

        async def requests() -> AsyncIterator[appstat_pb2.PutBlobRequest]:
            yield appstat_pb2.PutBlobRequest(sha256=sha256, data=data, owner=owner)

        await stub.PutBlob(requests())
    return sha256


def old(path: Path, data: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (time.time() - 9999,) * 2)
    return path


def counts(got: Garbage) -> dict[tuple[str, str], tuple[int, int]]:
    return {(one.kind, one.place): (one.count, one.size_bytes) for one in got.found}


async def trained(client: AsyncClient, name: str) -> int:
    """Return the units that an experiment's jobs have trained."""
    return sum(job.position for job in await client.jobs(name))


async def test_garbage_goes_while_an_experiment_runs_and_what_it_needs_stays(
    pieces: Pieces, client: AsyncClient, tmp_path: Path
) -> None:
    await pieces.start_agent()
    more = "snapshot: {keep_latest: 2, keep_best: 2}"
    file = experiment(tmp_path / "e", jobs=2, length=60, more=more, free=6, slow=0.5)
    created = await client.create(file)
    await until(lambda: len(pieces.stored()) > 2)  # Its code, and the snapshots of job 1 that it retains.

    own = await put(pieces, b"left by a crash", created.id)
    lost = await put(pieces, b"of nobody who is known", "gone-abcdef")
    code = await put(pieces, b"code that was never run", "bundle")
    foreign = await put(pieces, b"put by hand", "")
    orphan_name = hashlib.sha256(b"never owned").hexdigest()
    orphan = old(tmp_path / "appstat" / "store" / orphan_name[:2] / orphan_name, b"never owned")
    upload = old(tmp_path / "appstat" / "incoming" / "half", b"half")
    copy = old(tmp_path / "agent" / "snapshots" / ("ab" * 32), b"nobody's")
    packing = old(tmp_path / "agent" / "snapshots" / ".x.partial", b"pac")
    expected = {
        (garbage_collection.UNKNOWN, "store"): (1, 22),
        (garbage_collection.BUNDLES, "store"): (1, 23),
        (garbage_collection.UNOWNED, "store"): (1, 11),
        (garbage_collection.PARTIALS, "store"): (1, 4),
        (garbage_collection.UNKNOWN, "n"): (1, 8),
        (garbage_collection.PARTIALS, "n"): (1, 3),
    }

    looked = counts(await client.collect_garbage(dry_run=True, older_than=0))
    # In addition, snapshots that the running experiment no longer needs.
    count, size = looked.pop((garbage_collection.UNHELD, "store"))
    assert count >= 1
    assert size >= 15
    assert looked == expected
    assert all(path.exists() for path in (orphan, upload, copy, packing))
    assert {own, lost, code, foreign} <= set(pieces.stored())
    young = await client.collect_garbage(dry_run=False)  # A new blob may be about to be used.
    assert {own, lost, code, foreign} <= set(pieces.stored())
    assert (garbage_collection.UNOWNED, "store") in counts(young)
    assert not orphan.exists()

    swept = await client.collect_garbage(older_than=0)
    assert set(counts(swept)) == {
        (kind, "store") for kind in (garbage_collection.UNHELD, garbage_collection.UNKNOWN, garbage_collection.BUNDLES)
    }
    assert {own, lost, code}.isdisjoint(pieces.stored())
    assert foreign in pieces.stored()
    await until(lambda: not copy.exists())
    assert not upload.exists()
    assert not packing.exists()
    assert (await client.get(created.id)).state is ExperimentState.RUNNING
    # Repeatedly, while snapshots are added and deleted. New blobs stay: the scheduler may not know them yet.
    since = await trained(client, created.id)
    while await trained(client, created.id) < since + 4:
        await client.collect_garbage(older_than=scaled(0.2))
        await asyncio.sleep(0.05)

    await client.pause(created.id)

    async def paused() -> bool:
        return (await client.get(created.id)).state is ExperimentState.PAUSED

    await until(paused)
    held = {snapshot.sha256 for job in await client.jobs(created.id) for snapshot in job.snapshots}
    assert held
    assert held <= set(pieces.stored())
    await client.collect_garbage(older_than=0)
    assert held <= set(pieces.stored())
    let_go(file)
    await client.resume(created.id)
    ended = await client.wait(created.id, timeout=HANG_SECONDS)
    assert ended.state is ExperimentState.COMPLETED
    for job in await client.jobs(created.id):
        positions = [s.report.position for s in await client.statistics(created.id, job.id)]
        assert positions == list(range(1, 61))
        assert job.failures == 0


async def test_what_a_finished_experiment_has_stays_when_no_scheduler_remembers_it(
    pieces: Pieces, client: AsyncClient, tmp_path: Path
) -> None:
    await pieces.start_agent()
    created = await client.create(experiment(tmp_path / "e", jobs=2, length=3))
    await client.wait(created.id, timeout=HANG_SECONDS)
    assert pieces.scheduler is not None
    await pieces.scheduler.stop(1)
    await pieces.start_scheduler()
    held = {snapshot.sha256 for job in await client.jobs(created.id) for snapshot in job.snapshots}
    assert held
    left = await put(pieces, b"left by a crash", created.id)
    got = await client.collect_garbage(older_than=0, idle=[*held, "cd" * 32])
    assert counts(got) == {(garbage_collection.UNHELD, "store"): (1, 15)}
    assert got.unneeded == ("cd" * 32,)
    assert set(pieces.stored()) == {*held, created.bundle}
    assert left not in pieces.stored()
    assert (await client.download(created.id, to=tmp_path / "best")).folder == tmp_path / "best"


@pytest.mark.parametrize("pieces", [{"max_blob_bytes": 5000}], indirect=True)
async def test_a_finished_experiments_only_copy_outlives_a_restart_of_the_scheduler(
    pieces: Pieces, client: AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "REFUSALS", 1)
    await pieces.start_agent()
    created = await client.create(experiment(tmp_path / "e", jobs=1, length=2))
    await client.wait(created.id, timeout=HANG_SECONDS)
    (snapshot,) = (await client.jobs(created.id))[0].snapshots
    assert not snapshot.stored
    stranger = old(tmp_path / "agent" / "snapshots" / ("ab" * 32), b"nobody's")
    # A node that has runs at its hello may still report snapshots of them, so its other snapshots are not deleted.
    await until(lambda: pieces.agent is not None and not pieces.agent._runs.all())
    assert pieces.scheduler is not None
    await pieces.scheduler.stop(1)
    again = await pieces.start_scheduler()
    await until(lambda: bool(again._sessions.connected()))
    await again._copies.examine_all()
    assert pieces.local() == sorted([snapshot.sha256, stranger.name])  # The stranger stays for a grace.
    assert counts(await client.collect_garbage(older_than=0)) == {(garbage_collection.UNKNOWN, "n"): (1, 8)}
    await until(lambda: pieces.local() == [snapshot.sha256])
    assert (await client.download(created.id, to=tmp_path / "best")).sha256 == snapshot.sha256


async def test_copies_that_made_room_are_fetched_again_by_the_next_run(
    pieces: Pieces, client: AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "SETTLE_SECONDS", 0.0)
    await pieces.start_agent(quota=1)
    file = experiment(tmp_path / "e", jobs=1, length=60, free=5)
    created = await client.create(file)
    await until(lambda: len(pieces.stored()) > 1)
    await client.pause(created.id)

    async def suspended() -> bool:
        return (await client.jobs(created.id))[0].state is JobState.SUSPENDED

    # Before that, another snapshot may arrive at any moment.
    await until(suspended)
    await until(lambda: pieces.local() == [])

    async def told() -> bool:
        return not any(one.nodes for one in (await client.jobs(created.id))[0].snapshots)

    await until(told)
    job = (await client.jobs(created.id))[0]
    assert all(snapshot.stored for snapshot in job.snapshots)
    let_go(file)
    await client.resume(created.id)
    assert (await client.wait(created.id, timeout=HANG_SECONDS)).state is ExperimentState.COMPLETED
    job = (await client.jobs(created.id))[0]
    assert (job.attempt, job.failures) == (2, 0)
    positions = [s.report.position for s in await client.statistics(created.id, job.id)]
    assert positions == list(range(1, 61))


async def test_an_experiment_above_its_quota_says_so_and_ends_with_its_result(
    pieces: Pieces, client: AsyncClient, tmp_path: Path
) -> None:
    await pieces.start_agent()
    more = "snapshot: {keep_latest: 3, quota: 1B}"
    created = await client.create(experiment(tmp_path / "e", jobs=3, length=6, more=more))
    ended = await client.wait(created.id, timeout=HANG_SECONDS)
    assert ended.state is ExperimentState.COMPLETED
    assert ended.warning.endswith("more than snapshot.quota; all of them are still needed, so none is deleted")
    kept = [(job.id, one.position) for job in await client.jobs(created.id) for one in job.snapshots]
    assert kept == [(ended.best_job, ended.best_position)]
    await until(lambda: len(pieces.stored()) == 2)  # That snapshot and the code.


async def restart(pieces: Pieces, store_quota: int | None = None) -> None:
    assert pieces.scheduler is not None
    await pieces.scheduler.stop(1)
    await pieces.start_scheduler(store_quota)


def taking(seconds: float) -> str:
    """Return the trainer's code, changed to report that each iteration took `seconds`, whatever it really took."""
    return TRAINER.replace("(self.position + 1)}", f'(self.position + 1), "seconds": {seconds}}}')


def as_if(message: common_pb2.Report) -> Report:
    """Convert a report, with the time that its trainer reports as a metric."""
    report = report_from_proto(message)
    return replace(report, seconds=report.metrics.get("seconds", report.seconds))


async def test_experiments_that_are_over_make_room_for_all_and_the_quota_is_remembered(
    pieces: Pieces, client: AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Show this with two experiments with three snapshots of each of two jobs; iterations of the first count as ten times as long."""
    monkeypatch.setattr(converters, "report_from_proto", as_if)
    await pieces.start_agent()
    more = "snapshot: {keep_latest: 3, keep_best: 0}"
    made = []
    for name, seconds in (("dear", 0.4), ("cheap", 0.04)):
        file = experiment(tmp_path / name, jobs=2, length=4, pace=seconds / 100, more=more)
        (tmp_path / name / "train.py").write_text(taking(seconds))
        created = await client.create(file)
        assert (await client.wait(created.id, timeout=HANG_SECONDS)).state is ExperimentState.COMPLETED
        made.append(created.id)
    dear, cheap = made

    async def saved(name: str) -> list[tuple[str, int]]:
        return [(job.id, one.position) for job in await client.jobs(name) for one in job.snapshots]

    async def use() -> StoreUse:
        found = (await client.collect_garbage(dry_run=True)).store
        assert found is not None
        return found

    def stored() -> int:
        return sum(path.stat().st_size for path in (pieces.data / "appstat" / "store").glob("*/*"))

    everything, full = await saved(dear), await use()
    one, code = full.used_bytes // 12, stored() - full.used_bytes
    assert (full.quota_bytes, full.used_bytes, full.needed_bytes) == (None, 12 * one, 2 * one)  # Each has its result.
    assert (full.spare, full.next_bytes) == (10, one)
    assert 0 < full.next_seconds < 0.4 < full.spare_seconds

    await restart(pieces, store_quota=9 * one)
    await until(lambda: stored() == 9 * one + code)
    assert await saved(dear) == everything
    assert len(await saved(cheap)) == 3
    result = await client.get(cheap)
    assert (result.best_job, result.best_position) in await saved(cheap)

    await restart(pieces)
    left = await use()
    assert (left.quota_bytes, left.used_bytes, left.spare) == (9 * one, 9 * one, 7)
    await restart(pieces, store_quota=1)
    await until(lambda: stored() == 2 * one + code)
    running = await client.create(experiment(tmp_path / "running", jobs=1, length=10_000, pace=0.02))

    async def told() -> bool:
        return "more than the quota of the store; all that is left is needed" in (await client.get(running.id)).warning

    await until(told)
    await client.stop(running.id)
    await restart(pieces, store_quota=0)
    assert (await use()).quota_bytes is None
    assert (await client.download(dear, to=tmp_path / "best")).position == (await client.get(dear)).best_position


async def gc(data: Path, *options: str) -> dict[str, object]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hopyard.cli.main", "gc", "--data", str(data), "--json", *options),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0
    found: dict[str, object] = json.loads(said)
    return found


async def test_a_killed_store_leaves_a_part_of_an_upload_which_gc_removes_from_the_resting_folder(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    cluster = EmbeddedCluster(data, slots=0)
    address = await cluster.start()
    killed = asyncio.Event()

    async def half() -> AsyncIterator[appstat_pb2.PutBlobRequest]:
        yield appstat_pb2.PutBlobRequest(sha256="ef" * 32, data=b"x" * (1 << 20), owner="bundle")
        await killed.wait()

    async with AsyncClient(server=address) as client:
        appstat = (await client.cluster()).appstat_address
    async with channel_as("service", appstat) as link:
        stub: appstat_pb2_grpc.AppStatServiceAsyncStub = appstat_pb2_grpc.AppStatServiceStub(link)
        call = stub.PutBlob(half())
        await until(lambda: any(path.stat().st_size for path in (data / "incoming").glob("*")))
        cluster.kill()
        await cluster.stop()
        killed.set()
        call.cancel()
    (partial,) = (data / "incoming").iterdir()
    size = partial.stat().st_size
    copy = old(data / "agent" / "snapshots" / ("ab" * 32), b"nobody's")
    packing = old(data / "agent-node2" / "snapshots" / ".1234.packing", b"pac")
    theirs = old(data / "agent" / "snapshots" / "README", b"mine")
    expected = [
        {"kind": garbage_collection.PARTIALS, "place": "store", "count": 1, "size_bytes": size},
        {"kind": garbage_collection.COPIES, "place": "agent", "count": 1, "size_bytes": 8},
        {"kind": garbage_collection.PARTIALS, "place": "agent-node2", "count": 1, "size_bytes": 3},
    ]

    looked = await gc(data, "--dry-run")
    kept = {
        "kept": [],
        "kept_bytes": 0,
        "seconds_again": 0,
        "given_up_seconds": 0,
        "store": looked["store"],
        "experiments": [],
    }
    assert looked == {"dry_run": True, "found": expected, "notes": [], "bytes": size + 11, **kept}
    assert partial.exists()
    assert copy.exists()
    assert packing.exists()
    assert (await gc(data))["found"] == expected
    assert not any(path.exists() for path in (partial, copy, packing))
    assert theirs.exists()
    assert (await gc(data))["found"] == []
