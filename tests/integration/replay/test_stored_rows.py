"""Tests of the comparison of AppStat's rows with the journal (`hopyard replay`, `hopyard doctor`), and of their rebuild."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hopyard._net.server.embedded import Embedded
from hopyard.cli.doctor import disk
from hopyard.cli.doctor.check_result import Health
from hopyard.cli.doctor.database import rows
from hopyard.cli.main import run
from hopyard.client import AsyncClient
from hopyard.client.local_cluster.data_dir_lock import DataLock
from hopyard.client.queries import appstat_of
from hopyard.client.types import Experiment, ExperimentState, JobReport
from hopyard.errors import Aborted, Conflict, DataLoss, InvalidInput, NotFound
from hopyard.v1 import appstat_pb2
from hopyard_nodeagent.agent import NodeAgent
from hopyard_nodeagent.settings import AgentSettings, SlotSettings
from hopyard_tools.projections.rebuild import Rebuild, _appstat, rebuild_rows
from hopyard_tools.projections.stream_check import check_all, check_stream
from tests.integration.scheduler.conftest import experiment, let_go
from tests.timing import HANG_SECONDS


@dataclass
class Stopped:
    """The data directory of a stopped cluster with two experiments."""

    data: Path
    first: Experiment
    second: Experiment

    def change(self, statement: str, *values: object, count: int = 1) -> None:
        """Change the database, as a damaged disk does."""
        with closing(sqlite3.connect(self.data / "appstat.sqlite")) as database, database:
            assert database.execute(statement, values).rowcount == count

    def table(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.data / "appstat.sqlite")) as database:
            return database.execute(query).fetchall()

    def rows(self) -> list[list[tuple[Any, ...]]]:
        """Return all rows that follow from the journal."""
        statistics = (
            "experiment, job, attempt, position, part, metrics, seconds, at, examples, at_until, finished, in_force"
        )
        return [
            self.table("SELECT id, state, created_at FROM experiments ORDER BY id"),
            self.table("SELECT experiment, id, ordinal FROM jobs ORDER BY experiment, id"),
            self.table(f"SELECT {statistics} FROM statistics ORDER BY 1, 2, 4, 5"),
            self.table("SELECT * FROM plan_nodes ORDER BY key"),
            self.table("SELECT * FROM plan_stretches ORDER BY 1, 2, 3"),
            self.table("SELECT * FROM plan_snapshots ORDER BY 1, 2, 3"),
        ]


@asynccontextmanager
async def cluster(data: Path) -> AsyncIterator[AsyncClient]:
    """Run a cluster with an agent of two slots in this process, and yield a client."""
    lock = DataLock.acquire(data, "a test")
    services = Embedded(data, lease_seconds=10.0, heartbeat_seconds=1.0)
    address = await services.start()
    slots = tuple(SlotSettings(id=f"n/{number}", cpus=1) for number in range(2))
    agent = NodeAgent(AgentSettings(node="n", scheduler=address, data=data / "agent", slots=slots))
    await agent.start()
    try:
        async with AsyncClient(data=data) as client:
            yield client
    finally:
        await agent.stop()
        await services.stop()
        lock.release()


@pytest.fixture
async def stopped(tmp_path: Path) -> Stopped:
    data, made = tmp_path / "data", list[Experiment]()
    async with cluster(data) as client:
        more = ("policy: stage_tree\nsnapshot: {every: 2}", "snapshot: {every: 2}")
        for name, terms in zip("ab", more, strict=True):
            created = await client.create(experiment(tmp_path / name, jobs=3, length=5, more=terms))
            made.append(await client.wait(created, timeout=HANG_SECONDS))
            assert made[-1].state is ExperimentState.COMPLETED
    return Stopped(data, *made)


async def differences(data: Path) -> list[str]:
    async with AsyncClient.stored(data) as client:
        checks = [one async for one in check_all(await appstat_of(client))]
    assert [one.damage for one in checks] == ["", ""]
    return [str(difference) for one in checks for difference in one.differences]


async def test_rows_follow_from_the_journal_while_a_cluster_runs_and_after_kills(tmp_path: Path) -> None:
    data, file = tmp_path / "data", experiment(tmp_path / "e", jobs=6, length=6, more="snapshot: {every: 2}", free=3)
    checked = 0
    for last in (False, True):  # The scheduler starts twice.
        async with cluster(data) as client:
            made = (await client.experiments())[0] if last else await client.create(file)
            stub = await appstat_of(client)
            async for change in client.watch(made):
                if isinstance(change, JobReport):
                    found = await check_stream(stub, made.id)
                    assert [str(one) for one in found.differences] == []
                    checked += 1
                    if not last:
                        break
                    let_go(file)
            if last:
                assert (await client.wait(made, timeout=HANG_SECONDS)).state is ExperimentState.COMPLETED
                found = await check_stream(stub, made.id)
                assert (found.differences, found.experiments) == ((), (made.id,))
                assert len(found.rows) > 6 * 6
            else:
                await client.pause(made)
                await client.resume(made)
    assert checked > 1
    with pytest.raises(NotFound, match="stream nobody has no records"):
        async with AsyncClient.stored(data) as client:
            await check_stream(await appstat_of(client), "nobody")


METRIC = """
    UPDATE statistics SET metrics = '{"accuracy":0.125}' WHERE experiment = ? AND job = '1' AND position = 3
"""


async def test_each_changed_row_is_named_with_its_place_and_rebuilt(
    stopped: Stopped, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await differences(stopped.data) == []
    before, (a, b) = stopped.rows(), (stopped.first.id, stopped.second.id)
    stopped.change(METRIC, a)
    stopped.change("UPDATE statistics SET attempt = 7 WHERE experiment = ? AND job = '2' AND position = 1", b)
    stopped.change("UPDATE statistics SET metrics = 'no' WHERE experiment = ? AND job = '2' AND position = 2", b)
    stopped.change("DELETE FROM statistics WHERE experiment = ? AND job = '3' AND position = 4", b)
    stopped.change("UPDATE statistics SET position = 99 WHERE experiment = ? AND job = '3' AND position = 5", b)
    stopped.change("DELETE FROM jobs WHERE experiment = ? AND id = '1'", a)
    stopped.change(
        "UPDATE jobs SET message = (SELECT message FROM jobs WHERE experiment = ? AND id = '3') WHERE id = '2'",
        b,
        count=2,
    )
    stopped.change("DELETE FROM plan_snapshots WHERE rowid = (SELECT max(rowid) FROM plan_snapshots)")
    stopped.change("UPDATE plan_nodes SET values_json = '{}' WHERE start = 0", count=len(before[3]))
    found = await differences(stopped.data)
    for expected in (
        rf"job 1 of {a}, report at 3, metrics\[accuracy\]: found 0\.125, the journal gives \d+\.\d+",
        f"job 2 of {b}, report at 1, attempt: found 7, the journal gives 1",
        rf"job 2 of {b}, report at 2: found an unreadable row \(.*\), the journal gives a row",
        f"job 3 of {b}, report at 4: found nothing, the journal gives a row",
        f"job 3 of {b}, report at 99: found a row, the journal gives nothing",
        f"job 1 of {a}: found nothing, the journal gives a row",
        rf"job 2 of {b}: found an unreadable row \(.*whose id is '3'.*\), the journal gives a row",
        rf"job \d of {a}, search plan(, snapshots\[\d\].position)?: found nothing, the journal gives (\d|a row)",
        rf"job 1 of {a}, search plan, path\[0\].values_json: found '\{{\}}', the journal gives",
    ):
        assert any(re.fullmatch(f"{expected}.*", one) for one in found), (expected, found)
    findings = await rows(None, stopped.data)
    assert [one.health for one in findings] == [Health.PROBLEM] * 2
    assert "hopyard doctor --rebuild" in findings[0].advice

    assert await asyncio.to_thread(run, ["replay", a, "--data", str(stopped.data), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["decisions_equal"]
    assert (document["rows"]["equal"], document["rows"]["damage"]) == (False, None)
    (report,) = [one for one in document["rows"]["differences"] if one["row"] == "statistic"]
    assert (report["job"], report["position"], report["field"], report["found"]) == (
        "1",
        3,
        "metrics[accuracy]",
        "0.125",
    )

    doctor = ["doctor", "--rebuild", "--data", str(stopped.data)]
    changed = stopped.rows()
    assert await asyncio.to_thread(run, [*doctor, "--dry-run"]) == 0
    out = capsys.readouterr()
    assert f"job 2 of {b}, report at 1, attempt: found 7, the journal gives 1" in out.out
    assert "nothing was changed" in out.err
    assert stopped.rows() == changed
    assert await asyncio.to_thread(run, doctor) == 2  # Nobody can be asked.
    assert await asyncio.to_thread(run, [*doctor, stopped.first.id, "--yes"]) == 0
    assert f"rebuilt {a}" in capsys.readouterr().out
    assert all(b in one for one in await differences(stopped.data))
    assert await asyncio.to_thread(run, [*doctor, "--yes"]) == 0
    assert await differences(stopped.data) == []
    assert stopped.rows() == before
    async with cluster(stopped.data) as client:  # The cluster continues with them.
        assert len(await client.statistics(a)) == 15


async def test_a_row_without_a_journal_is_named(stopped: Stopped) -> None:
    stopped.change(
        "DELETE FROM journal WHERE stream = ?",
        stopped.second.id,
        count=stopped.table(f"SELECT count(*) FROM journal WHERE stream = '{stopped.second.id}'")[0][0],
    )
    stopped.change("DELETE FROM streams WHERE name = ?", stopped.second.id)
    (found,) = await rows(None, stopped.data)
    assert found.detail == f"{stopped.second.id}: found a row of an experiment without a journal"


def never(plan: Rebuild) -> bool:
    raise AssertionError(plan)


async def test_a_stream_whose_journal_is_damaged_is_named_and_not_rebuilt(
    stopped: Stopped, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped.change("UPDATE journal SET at = at + 1 WHERE stream = ? AND position = 5", stopped.first.id)
    stopped.change(METRIC, stopped.first.id)
    changed = stopped.rows()
    done = await rebuild_rows(stopped.data, [], never)
    assert ([one.stream for one in done.damaged], done.equal) == ([stopped.first.id], (stopped.second.id,))
    assert stopped.rows() == changed
    assert await asyncio.to_thread(run, ["doctor", "--rebuild", "--yes", "--data", str(stopped.data)]) == 1
    assert (
        f"error: {stopped.first.id} is not rebuilt, because its journal is damaged: journal of"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("position", [1, 5])
async def test_a_damaged_stream_is_found_by_the_id_and_the_name_of_its_experiment(
    stopped: Stopped, position: int
) -> None:
    assert stopped.first.name != stopped.first.id
    stopped.change("UPDATE journal SET at = at + 1 WHERE stream = ? AND position = ?", stopped.first.id, position)
    for name, equal in ((stopped.first.id, ()), (stopped.first.name, (stopped.second.id,))):  # They have the same name.
        done = await rebuild_rows(stopped.data, [name], never)
        assert [(one.stream, one.experiments) for one in done.damaged] == [(stopped.first.id, (stopped.first.id,))]
        assert done.equal == equal
    stopped.change("UPDATE experiments SET message = 'no' WHERE id = ?", stopped.second.id)
    assert not (await rebuild_rows(stopped.data, [stopped.first.id], never)).written
    done = await rebuild_rows(stopped.data, [stopped.second.id], lambda plan: True)
    assert done.written
    assert [(one.rows, one.found) for one in done.changed] == [
        ({}, {})
    ]  # The rows of all streams may need much memory.
    stopped.change("UPDATE experiments SET message = 'no' WHERE id = ?", stopped.first.id)
    (damaged,) = (await rebuild_rows(stopped.data, [stopped.first.id], never)).damaged
    assert damaged.experiments == (stopped.first.id,)
    assert [one.health for one in await rows(None, stopped.data)] == [
        Health.OK
    ]  # The check of the journal names the other.


async def test_an_unreadable_row_of_an_experiment_is_named_and_rebuilt(stopped: Stopped) -> None:
    stopped.change("UPDATE experiments SET message = 'no' WHERE id = ?", stopped.first.id)
    findings = await rows(None, stopped.data)
    assert f"{stopped.first.id}: found an unreadable row" in findings[0].detail
    assert all("hopyard doctor --rebuild" in one.advice for one in findings)
    assert (await rebuild_rows(stopped.data, [], lambda plan: True)).written
    assert [one.health for one in await rows(None, stopped.data)] == [Health.OK]


async def test_damaged_pages_of_the_tables_are_no_damage_of_a_journal(stopped: Stopped) -> None:
    ((root,),) = stopped.table("SELECT rootpage FROM sqlite_master WHERE name = 'statistics'")
    with (stopped.data / "appstat.sqlite").open("r+b") as opened:
        opened.seek((root - 1) * 4096)
        opened.write(b"\xff" * 64)
    (found,) = await rows(None, stopped.data)
    assert found.health is Health.PROBLEM
    assert "cannot be read as a database (database disk image is malformed)" in found.detail
    assert found.advice == "restore the data directory from a backup (hopyard restore)"
    with pytest.raises(DataLoss, match=r"is malformed|the database is damaged"):
        await rebuild_rows(stopped.data, [], never)


async def test_services_that_were_started_one_by_one_are_found(stopped: Stopped) -> None:
    (stopped.data / "cluster.lock").unlink()
    assert await asyncio.to_thread(disk.served_at, stopped.data) == ""
    services = Embedded(stopped.data, lease_seconds=10.0, heartbeat_seconds=1.0)
    address = await services.start()
    try:
        assert await asyncio.to_thread(disk.served_at, stopped.data) == address
        found = await asyncio.to_thread(disk.data_folder, stopped.data)
        assert found.detail == f"{stopped.data}: a scheduler serves it at {address}"
        with pytest.raises(Conflict, match=r"another appstat .* uses this data folder; stop it"):
            await rebuild_rows(stopped.data, [], never)
    finally:
        await services.stop()
    assert [one.health for one in await rows(None, stopped.data)] == [Health.OK]


async def test_a_rebuild_needs_a_stopped_cluster_and_a_known_experiment(stopped: Stopped, tmp_path: Path) -> None:
    stopped.change(METRIC, stopped.first.id)
    lock = DataLock.acquire(stopped.data, "hopyard up")
    with pytest.raises(Conflict, match=r"hopyard up .*--rebuild needs a cluster that does not run"):
        await rebuild_rows(stopped.data, [], never)
    lock.release()
    with pytest.raises(NotFound, match=f"there is no experiment 'other'; there are: .*{stopped.first.id}"):
        await rebuild_rows(stopped.data, ["other"], never)
    with pytest.raises(NotFound, match="no cluster has run here"):
        await rebuild_rows(tmp_path / "empty", [], never)
    assert not (await rebuild_rows(stopped.data, [], lambda plan: False)).written
    assert (await rebuild_rows(stopped.data, [], lambda plan: True)).written


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda request: request.ClearField("complete"), InvalidInput),
        (lambda request: request.streams[0].ClearField("length"), Aborted),
        (lambda request: request.projections.add(), InvalidInput),
        (lambda request: setattr(request, "epoch", request.epoch - 1), Conflict),
    ],
)
async def test_a_replacement_is_written_whole_or_not_at_all(
    stopped: Stopped, spoil: Callable[[appstat_pb2.ReplaceProjectionsRequest], object], error: type[Exception]
) -> None:
    before = stopped.rows()
    async with _appstat(stopped.data) as stub:
        epoch = (await stub.BeginEpoch(appstat_pb2.BeginEpochRequest(holder="a test"))).epoch
        request = appstat_pb2.ReplaceProjectionsRequest(epoch=epoch, complete=True)
        length = stopped.table(f"SELECT length FROM streams WHERE name = '{stopped.first.id}'")[0][0]
        request.streams.add(stream=stopped.first.id, length=length, experiments=[stopped.first.id])
        spoil(request)
        with pytest.raises(error):
            await stub.ReplaceProjections(iter([request]))
    assert stopped.rows() == before
