"""Tests of the replacement of a scheduler: agents continue training, no record is lost or duplicated, and only one writes."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from hopyard._net.auth.tickets import issue_ticket
from hopyard._net.rpc import channel
from hopyard.client import AsyncClient
from hopyard.client.types import ExperimentState, JobReport, JobState
from hopyard.errors import Conflict, DataLoss, Exhausted, StaleEpoch
from hopyard.policy.vocabulary.reasons import ReasonCode
from hopyard.v1 import appstat_pb2, appstat_pb2_grpc, node_agent_pb2, node_agent_pb2_grpc
from hopyard.v1 import resource_manager_pb2 as r
from hopyard.v1 import resource_manager_pb2_grpc as r_grpc
from hopyard_appstat.service import AppStatService
from hopyard_engine.journal.format import FORMAT
from hopyard_hpgen.service import HpgenService
from hopyard_nodeagent.agent import NodeAgent
from hopyard_nodeagent.settings import AgentSettings, SlotSettings
from hopyard_scheduler.external_requests import generator_client
from hopyard_scheduler.service import SchedulerService
from hopyard_tools.commands.journal_source import reading
from hopyard_tools.commands.replay import drive
from tests.access import channel_as
from tests.integration.scheduler.conftest import experiment, let_go
from tests.timing import HANG_SECONDS


class Pieces:
    """Services that run longer than a scheduler."""

    def __init__(self, data: Path) -> None:
        self.appstat = AppStatService(data=data / "appstat")
        self.hpgen = HpgenService(data=data / "hpgen")
        self.data = data
        self.started: list[SchedulerService] = []

    async def scheduler(self, folder: str = "scheduler") -> SchedulerService:
        """Start another scheduler on the same AppStat, at the same address as an earlier one with the same data folder."""
        made = SchedulerService(appstat=self.appstat.address, hpgen=self.hpgen.address, data=self.data / folder)
        self.started.append(made)
        await made.start()
        return made


@pytest.fixture
async def pieces(tmp_path: Path) -> AsyncIterator[Pieces]:
    found = Pieces(tmp_path)
    await found.appstat.start()
    await found.hpgen.start()
    try:
        yield found
    finally:
        for scheduler in found.started:
            await scheduler.stop(1)
        await found.hpgen.stop(1)
        await found.appstat.stop(1)


async def _trained_on(agent: NodeAgent) -> None:
    """Wait until the agent has ten unacknowledged reports, while the scheduler is stopped."""
    ticket = issue_ticket(agent._tickets.key, "GetStatus", "", time.time())
    async with channel(agent.address, token=ticket) as opened, asyncio.timeout(HANG_SECONDS):
        stub: node_agent_pb2_grpc.NodeAgentServiceAsyncStub = node_agent_pb2_grpc.NodeAgentServiceStub(opened)
        status = await stub.GetStatus(node_agent_pb2.GetStatusRequest())
        while status.connected or status.unacknowledged < 10:
            await asyncio.sleep(0.02)  # Another process trains.
            status = await stub.GetStatus(node_agent_pb2.GetStatusRequest())


async def test_agents_train_on_while_the_scheduler_is_away(pieces: Pieces, tmp_path: Path) -> None:
    first = await pieces.scheduler()
    agent = NodeAgent(
        AgentSettings(
            node="n", scheduler=first.address, data=tmp_path / "agent", slots=(SlotSettings(id="n/0", cpus=1),)
        )
    )
    await agent.start()
    try:
        async with AsyncClient(server=first.address, patience=HANG_SECONDS) as client:
            file = experiment(tmp_path / "e", jobs=2, length=60, free=20)
            created = await client.create(file)
            async for _ in client.watch(created.id):
                if await client.jobs(created.id, JobState.RUNNING):
                    break
            await first.stop(0)
            await _trained_on(agent)
            await pieces.scheduler()
            let_go(file)
            ended = await client.wait(created.id, timeout=HANG_SECONDS)
            assert (ended.state, ended.reason) == (ExperimentState.COMPLETED, "all jobs ended")
            jobs = await client.jobs(created.id)
            assert [job.attempt for job in jobs] == [1, 1]
            for job in jobs:
                positions = [s.report.position for s in await client.statistics(created.id, job.id)]
                assert positions == list(range(1, 61))
    finally:
        await agent.stop()


async def test_a_reservation_outlives_the_scheduler_and_ends_with_its_release(pieces: Pieces, tmp_path: Path) -> None:
    scheduler = await pieces.scheduler()
    slots = (SlotSettings(id="n/0", cpus=1), SlotSettings(id="n/1", cpus=1))
    agent = NodeAgent(AgentSettings(node="n", scheduler=scheduler.address, data=tmp_path / "agent", slots=slots))
    await agent.start()
    policy = "policy: {name: 'tests.integration.scheduler.policies:Spare'}"
    file = experiment(tmp_path / "e", jobs=1, length=60, free=5, more=policy)
    try:
        async with AsyncClient(server=scheduler.address, patience=HANG_SECONDS) as client:
            created = await client.create(file)
            request = r.ReserveIdleMachineRequest(experiment=created.id, request_id="a")
            async with channel_as("user", scheduler.address) as opened:
                stub: r_grpc.ResourceManagerServiceAsyncStub = r_grpc.ResourceManagerServiceStub(opened)
                first = await _when_idle(stub, request)
                assert (await stub.ReserveIdleMachine(request)).slot == first
            await scheduler.stop(0)
            scheduler = await pieces.scheduler()
            async with channel_as("user", scheduler.address) as opened:
                stub = r_grpc.ResourceManagerServiceStub(opened)
                assert (await stub.ReserveIdleMachine(request)).slot == first
                with pytest.raises(Exhausted, match="no idle slot"):
                    await stub.ReserveIdleMachine(r.ReserveIdleMachineRequest(experiment=created.id, request_id="b"))
                await stub.ReleaseMachine(r.ReleaseMachineRequest(slot=first))
                another = r.ReserveIdleMachineRequest(experiment=created.id, request_id="b")
                assert (await stub.ReserveIdleMachine(another)).slot == first
            let_go(file)
            await client.wait(created.id, timeout=HANG_SECONDS)
    finally:
        await agent.stop()


async def _when_idle(stub: r_grpc.ResourceManagerServiceAsyncStub, request: r.ReserveIdleMachineRequest) -> str:
    """Reserve a slot as soon as one is idle while a job has the other one; return its id."""
    async with asyncio.timeout(HANG_SECONDS):
        while not any(slot.job for slot in (await stub.ListSlots(r.ListSlotsRequest())).slots):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)
        while True:
            try:
                return (await stub.ReserveIdleMachine(request)).slot
            except Exhausted:
                await asyncio.sleep(0.02)


async def test_of_two_schedulers_on_one_appstat_the_newer_writes(pieces: Pieces, tmp_path: Path) -> None:
    first = await pieces.scheduler()
    second = await pieces.scheduler("another folder")
    async with AsyncClient(server=second.address) as client:
        created = await client.create(experiment(tmp_path / "e", jobs=1))
        await client.stop(created.id)
    outvoted = asyncio.create_task(first.wait(asyncio.Event()))
    async with AsyncClient(server=first.address, patience=1, timeout=HANG_SECONDS) as client:
        creating = asyncio.create_task(client.create(experiment(tmp_path / "e", jobs=1)))
        with pytest.raises(StaleEpoch, match="epoch"):
            await outvoted
        creating.cancel()
        await asyncio.gather(creating, return_exceptions=True)
    pieces.started.remove(first)
    with pytest.raises(StaleEpoch):
        await first.stop(0)


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        (FORMAT, "journal record of unknown kind 'Nonsense'"),
        (0, f"found no format version, supported is version {FORMAT}; use the version of Hopyard that wrote it"),
        (1, f"found format version 1, supported is version {FORMAT}; use the version of Hopyard that wrote it"),
        (FORMAT + 1, f"found format version {FORMAT + 1}, supported is version {FORMAT}; install a Hopyard"),
    ],
)
async def test_a_journal_that_cannot_be_read_pauses_its_experiment_and_fails_no_start(
    pieces: Pieces, tmp_path: Path, version: int, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = await pieces.scheduler()
    async with AsyncClient(server=first.address) as client:
        poisoned = await client.create(experiment(tmp_path / "e"))
        sound = await client.create(experiment(tmp_path / "e"))
    await first.stop(0)
    async with channel_as("service", pieces.appstat.address) as opened:
        stub: appstat_pb2_grpc.AppStatServiceAsyncStub = appstat_pb2_grpc.AppStatServiceStub(opened)
        epoch = (await stub.BeginEpoch(appstat_pb2.BeginEpochRequest(holder="poisoner"))).epoch
        streams = await stub.ListStreams(appstat_pb2.ListStreamsRequest())
        end = next(s.length for s in streams.streams if s.stream == poisoned.id)
        record = appstat_pb2.JournalRecord(
            stream=poisoned.id, position=end + 1, at=1.0, kind="Nonsense", payload=b"{}", version=version
        )
        await stub.AppendJournal(appstat_pb2.AppendJournalRequest(epoch=epoch, records=[record]))
    second = await pieces.scheduler()
    async with AsyncClient(server=second.address) as client:
        found = await client.get(poisoned.id)
        assert found.state is ExperimentState.PAUSED
        assert found.reason_code is ReasonCode.JOURNAL_UNREADABLE
        assert f": journal of {poisoned.id}, record {end + 1}: {reason}" in found.reason
        assert "\n" not in found.reason
        assert (await client.get(sound.id)).state is ExperimentState.RUNNING
        await client.stop(sound.id)
    assert [one for one in caplog.records if one.exc_info and poisoned.id in one.getMessage()] == []


def change(pieces: Pieces, statement: str, *values: object) -> None:
    """Change the database of AppStat with SQL, as a damaged disk or a repair does."""
    with (
        closing(sqlite3.connect(pieces.data / "appstat" / "appstat.sqlite", timeout=HANG_SECONDS)) as database,
        database,
    ):
        assert database.execute(statement, values).rowcount == 1


DAMAGE = "update journal set at = at + {} where stream = ? and position = 1"


async def test_a_damaged_journal_pauses_its_experiment_until_it_is_mended(pieces: Pieces, tmp_path: Path) -> None:
    first = await pieces.scheduler()
    async with AsyncClient(server=first.address) as client:
        damaged, sound = [await client.create(experiment(tmp_path / name, jobs=1)) for name in ("e", "f")]
    await first.stop(0)
    change(pieces, DAMAGE.format(1), damaged.id)
    second = await pieces.scheduler()
    async with AsyncClient(server=second.address) as client:
        found = await client.get(damaged)
        assert (found.state, found.reason_code) == (ExperimentState.PAUSED, ReasonCode.JOURNAL_UNREADABLE)
        assert f"journal of {damaged.id}: record 1 " in found.reason
        for call in (client.resume, client.stop, client.pause):
            with pytest.raises(DataLoss, match="record 1 or the one before it was changed"):
                await call(damaged)
        assert (await client.get(sound)).state is ExperimentState.RUNNING
        change(pieces, DAMAGE.format(-1), damaged.id)
        resumed = await client.resume(damaged)
        assert resumed.state is ExperimentState.RUNNING
        assert resumed.reason_code is not ReasonCode.JOURNAL_UNREADABLE
        slots = (SlotSettings(id="n/0", cpus=1),)
        agent = NodeAgent(AgentSettings(node="n", scheduler=second.address, data=tmp_path / "agent", slots=slots))
        await agent.start()
        try:
            for one in (damaged, sound):
                assert (await client.wait(one, timeout=HANG_SECONDS)).state is ExperimentState.COMPLETED
        finally:
            await agent.stop()


async def test_the_damaged_row_of_an_experiment_is_written_again_from_its_journal(
    pieces: Pieces, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = await pieces.scheduler()
    async with AsyncClient(server=first.address) as client:
        damaged, sound, paused = [await client.create(experiment(tmp_path / name, jobs=1)) for name in ("e", "f", "g")]
        await client.stop(sound)
        await client.wait(sound, timeout=HANG_SECONDS)
    await first.stop(0)
    for one in (damaged, sound, paused):
        change(pieces, "update experiments set message = x'ff' where id = ?", one.id)
    change(pieces, DAMAGE.format(1), paused.id)
    second = await pieces.scheduler()
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert f"the row of experiment {damaged.id} was damaged, and is written again from its journal" in said
    assert any(one.startswith(f"experiment {paused.id}: its row is damaged; if it is in a group") for one in said)
    async with AsyncClient(server=second.address) as client:
        assert (await client.get(damaged)).state is ExperimentState.RUNNING
        for one in (sound, paused):  # A scheduler does not read the journals of ended experiments.
            found = await client.get(one)
            assert found.reason_code is ReasonCode.ROW_UNREADABLE
            assert f"hopyard doctor --rebuild {one.id}" in found.reason
        assert len(await client.experiments()) == 3
        await client.create(experiment(tmp_path / "h", jobs=1))
        with pytest.raises(DataLoss, match="hopyard doctor --rebuild"):
            await client.collect_garbage()
    async with channel_as("service", pieces.appstat.address) as opened:
        stub: appstat_pb2_grpc.AppStatServiceAsyncStub = appstat_pb2_grpc.AppStatServiceStub(opened)
        rows = await stub.QueryExperiments(appstat_pb2.QueryExperimentsRequest())
        assert damaged.id in {row.id for row in rows.experiments}
        assert {row.id for row in rows.damaged} == {sound.id, paused.id}


async def test_an_experiment_that_held_slots_when_its_journal_was_damaged_continues_without_a_restart(
    pieces: Pieces, tmp_path: Path
) -> None:
    first = await pieces.scheduler()
    slots = tuple(SlotSettings(id=f"n/{number}", cpus=1) for number in range(3))
    agent = NodeAgent(AgentSettings(node="n", scheduler=first.address, data=tmp_path / "agent", slots=slots))
    await agent.start()
    more = "generator: grid\nsnapshot: {every: 3}"
    alone = f"{more}\nresources: {{slots: 1}}"
    files = [
        experiment(tmp_path / name, jobs=3, length=8, more=terms, free=4, slow=60.0)
        for name, terms in (("e", alone), ("f", alone), ("g", more))
    ]
    for file in files:
        file.write_text(file.read_text().replace("{uniform: [0.0, 1.0]}", "{choice: [0.25, 0.5, 0.75]}"))
    try:
        async with AsyncClient(server=first.address) as client:
            made = [await client.create(file) for file in files]
            for one in made:  # Each holds a slot and has trained.
                async for change_ in client.watch(one):
                    if isinstance(change_, JobReport):
                        break
        await first.stop(0)
        damaged, short, long = made
        change(pieces, DAMAGE.format(1), damaged.id)
        second = await pieces.scheduler()
        async with AsyncClient(server=second.address) as client:
            found = await client.get(damaged)
            assert (found.state, found.reason_code) == (ExperimentState.PAUSED, ReasonCode.JOURNAL_UNREADABLE)
            let_go(files[1])
            assert (await client.wait(short, timeout=HANG_SECONDS)).state is ExperimentState.COMPLETED
            async with asyncio.timeout(HANG_SECONDS):
                while (await client.get(long)).slots < 3:  # noqa: ASYNC110 - among them those that the damaged one held
                    await asyncio.sleep(0.02)
            with pytest.raises(DataLoss, match="record 1 or the one before it was changed"):
                await client.resume(damaged)
            change(pieces, DAMAGE.format(-1), damaged.id)
            assert (await client.resume(damaged)).state is ExperimentState.RUNNING
            assert (await client.get(long)).state is ExperimentState.RUNNING
            for file in files:
                let_go(file)
            for one in made:
                assert (await client.wait(one, timeout=HANG_SECONDS)).state is ExperimentState.COMPLETED
            for one in made:
                jobs = await client.jobs(one)
                assert sorted(job.hyperparameters["x"] for job in jobs) == [0.25, 0.5, 0.75]
                for job in jobs:
                    x, reports = job.hyperparameters["x"], [m.report for m in await client.statistics(one, job.id)]
                    found_ = [(report.position, report.metrics) for report in reports]
                    assert found_ == [(position, {"accuracy": x * position}) for position in range(1, 9)]
                    assert job.failures == 0
            for one in made:
                async with reading(client, await client.get(one)) as source:
                    driven, _ = await drive(source, None, quiet=True)
                assert driven.up_calls > 3
                assert driven.first is None
            assert max([job.attempt for job in await client.jobs(damaged)]) > 1  # A run that held a slot was lost.
    finally:
        await agent.stop()


async def test_an_experiment_with_a_damaged_journal_is_deleted_by_force(pieces: Pieces, tmp_path: Path) -> None:
    first = await pieces.scheduler()
    async with AsyncClient(server=first.address) as client:
        made = await client.create(experiment(tmp_path / "e", jobs=1))
    await first.stop(0)
    change(pieces, "delete from journal where stream = ? and position = 1", made.id)
    second = await pieces.scheduler()
    async with AsyncClient(server=second.address) as client:
        with pytest.raises(Conflict, match="is PAUSED"):
            await client.delete([made])
        assert await client.delete([made], force=True)
        assert await client.experiments() == []


async def test_a_generator_that_learns_gets_its_calls_again_in_the_order_in_which_it_got_them(
    pieces: Pieces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generator_client, "_AT_ONCE", 7)  # So that they arrive in several messages.
    scheduler = await pieces.scheduler()
    slots = tuple(SlotSettings(id=f"n/{number}", cpus=1) for number in range(3))
    agent = NodeAgent(AgentSettings(node="n", scheduler=scheduler.address, data=tmp_path / "agent", slots=slots))
    await agent.start()
    more = "generator: tests.integration.scheduler.generators:Learning\npolicy: {name: default, ahead: 4}"
    try:
        async with AsyncClient(server=scheduler.address, patience=HANG_SECONDS) as client:
            created = await client.create(experiment(tmp_path / "e", jobs=40, length=2, pace=0.01, more=more))
            for wanted in (8, 16, 24):
                async for _ in client.watch(created.id):
                    if len(await client.jobs(created.id, JobState.COMPLETED)) >= wanted:
                        break
                await pieces.hpgen.stop(0)
                pieces.hpgen = HpgenService(data=pieces.data / "hpgen")
                await pieces.hpgen.start()
            ended = await client.wait(created.id, timeout=HANG_SECONDS)
            assert (ended.state, ended.reason) == (ExperimentState.COMPLETED, "all jobs ended")
            jobs = await client.jobs(created.id)
            assert len(jobs) == 40
            assert len({job.hyperparameters["x"] for job in jobs}) > 20
    finally:
        await agent.stop()
