"""Tests of the asynchronous client against a served fake cluster."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from hopyard._net.auth import CallerKind, new_token
from hopyard.cli.commands.inspect.files import _beside_best
from hopyard.client import AsyncClient
from hopyard.client.types import Change, Experiment, ExperimentState, Job, JobReport, JobState
from hopyard.client.wire.connection import Connection
from hopyard.errors import AlreadyExists, DataLoss, Exhausted, InvalidInput, NotFound, TimedOut, Unavailable
from hopyard.spec import SpecError
from tests.integration.cli.conftest import SPEC
from tests.integration.cli.fake import FakeCluster
from tests.timing import HANG_SECONDS, scaled


async def test_an_experiment_from_its_file_to_its_best_state(
    fake: FakeCluster, client: AsyncClient, experiment_file: Path, tmp_path: Path
) -> None:
    created = await client.create(experiment_file)
    assert created.name == "small"
    assert created.spec["stop"]["jobs"] == 3
    assert created.bundle in fake.blobs

    ended = await client.wait(created, timeout=HANG_SECONDS)
    assert ended.state is ExperimentState.COMPLETED
    best = await client.best(ended)
    assert best is not None
    assert (best.id, best.best_position) == ("3", 8)
    assert best.hyperparameters == {"layers": 3, "lr": pytest.approx(0.3)}

    curve = await client.curve(ended, best.id)
    assert [point.position for point in curve] == list(range(1, 9))
    assert curve[-1].value == best.best_value

    got = await client.download(ended, to=tmp_path / "best")
    assert (got.folder / "weights.txt").read_text() == "job 3 at 8"
    with pytest.raises(AlreadyExists, match=r"best exists already"):
        await client.download(ended, to=tmp_path / "best")


async def test_a_snapshot_that_is_not_the_best_says_so(
    fake: FakeCluster, client: AsyncClient, experiment_file: Path, tmp_path: Path
) -> None:
    ended = await client.wait(await client.create(experiment_file), timeout=HANG_SECONDS)
    at_best = await client.download(ended, to=tmp_path / "best")
    assert (at_best.metric, at_best.value, at_best.best_missing) == ("accuracy", at_best.best_value, False)
    job = fake.search(ended.id).jobs["3"]
    job.best_position, job.best_value = 5, 0.99
    other = await client.download(ended, to=tmp_path / "other")
    assert other.best_missing
    assert (other.position, other.best_position, other.best_value) == (8, 5, 0.99)
    assert other.value == at_best.value
    assert _beside_best(other) == " (accuracy 0.9549 there; the best, 0.99 at 5, has no snapshot)"
    assert _beside_best(at_best) == ""


async def test_a_watch_that_was_ended_because_it_was_slow_is_opened_again(
    fake: FakeCluster, client: AsyncClient, experiment_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = await client.create(experiment_file)
    search, calls = fake.search, list[str]()

    def refused_once(name: str) -> Any:
        calls.append(name)
        if len(calls) == 1:
            raise Exhausted("the watch is ended because its client reads too slowly")
        return search(name)

    monkeypatch.setattr(fake, "search", refused_once)
    changes = [change async for change in client.watch(created)]
    assert calls[:2] == [created.id] * 2
    # If the experiment has ended before the second watch, its jobs follow its state.
    assert [change for change in changes if isinstance(change, Experiment)][-1].state.ended


async def test_a_silent_watch_is_opened_again(
    fake: FakeCluster, client: AsyncClient, experiment_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = await client.create(experiment_file)
    fake.silent_watches = 2
    monkeypatch.setattr("hopyard.client.queries._SILENCE_SECONDS", scaled(0.2))
    assert (await client.wait(created, HANG_SECONDS)).state.ended
    assert fake.silent_watches == 0


async def test_watch_brings_the_present_state_then_every_change_and_ends(
    client: AsyncClient, experiment_file: Path
) -> None:
    created = await client.create(experiment_file)
    changes = [change async for change in client.watch(created)]
    assert isinstance(changes[0], Experiment)
    assert {change.id for change in changes if isinstance(change, Job)} == {"1", "2", "3"}
    last = changes[-1]
    assert isinstance(last, Experiment)
    assert last.state is ExperimentState.COMPLETED
    reported = [(change.job, change.report.position) for change in changes if isinstance(change, JobReport)]
    assert len(set(reported)) == len(reported) > 0
    # A watch of an ended experiment yields only its state.
    again = [change async for change in client.watch(created)]
    assert len(again) == 4


async def test_pause_and_resume(client: AsyncClient, experiment_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    created = await client.create(SPEC.replace("name: small", "name: endless"), folder=experiment_file.parent)
    await client.pause(created)
    paused = await client.wait(created, timeout=HANG_SECONDS, until={ExperimentState.PAUSED})
    assert paused.state is ExperimentState.PAUSED

    async def nothing_new(experiment: str | Experiment) -> AsyncGenerator[Change]:
        yield paused
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(client, "watch", nothing_new)
        with pytest.raises(TimedOut, match=r"still PAUSED after 0.01 s"):
            await client.wait(created, timeout=0.01)
    assert (await client.resume(created)).state is ExperimentState.RUNNING
    assert (await client.stop(created)).state is ExperimentState.STOPPED


async def test_the_same_code_travels_once(fake: FakeCluster, client: AsyncClient, experiment_file: Path) -> None:
    first = await client.create(experiment_file)
    second = await client.create(SPEC, folder=experiment_file.parent)
    assert first.bundle == second.bundle
    assert fake.puts == 1
    assert [one.id for one in await client.experiments()] == ["e2", "e1"]


async def test_a_wrong_file_is_told_before_anything_is_sent(fake: FakeCluster, client: AsyncClient) -> None:
    with pytest.raises(SpecError, match=r"experiment:\d+"):
        await client.create(SPEC.replace("max}", "highest}"))
    assert not fake.searches


async def test_jobs_by_state(client: AsyncClient, experiment_file: Path) -> None:
    ended = await client.wait(await client.create(experiment_file), timeout=HANG_SECONDS)
    assert [job.id for job in await client.jobs(ended, JobState.COMPLETED)] == ["1", "2", "3"]
    assert await client.jobs(ended, JobState.RUNNING) == []


async def test_nodes_and_cluster(fake: FakeCluster, client: AsyncClient) -> None:
    (node,) = await client.nodes()
    assert [slot.id for slot in node.slots] == ["local/0"]
    assert (await client.cluster()).appstat_address == fake.server.address


@pytest.mark.parametrize("follow", [False, True])
async def test_logs(client: AsyncClient, experiment_file: Path, follow: bool) -> None:
    ended = await client.wait(await client.create(experiment_file), timeout=HANG_SECONDS)
    chunks = [chunk async for chunk in client.logs(ended, "2", follow=follow)]
    assert b"".join(chunk.data for chunk in chunks) == b"job 2 line 0\njob 2 line 1\njob 2 line 2\n"
    assert {chunk.node for chunk in chunks} == {"local"}


async def test_a_node_never_gets_the_token_of_the_user(
    fake: FakeCluster, client: AsyncClient, experiment_file: Path
) -> None:
    ended = await client.wait(await client.create(experiment_file), timeout=HANG_SECONDS)
    assert [chunk async for chunk in client.logs(ended, "2")]
    assert fake.tickets.seen
    assert set(fake.tickets.seen) == {f"StreamLogs {ended.id}/2"}


@pytest.mark.parametrize("token", ["", "secret", "hop_user_x", f"hop_node_00000000_{43 * 'a'}", "ä"])
def test_what_is_no_user_token_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(InvalidInput, match=r"^token: found") as error:
        AsyncClient("127.0.0.1:9", token=token)
    assert not token or token not in str(error.value)
    AsyncClient("127.0.0.1:9", token=f" {new_token(CallerKind.USER).text}\n")


async def test_an_open_client_uses_the_tokens_that_have_replaced_the_first(
    fake: FakeCluster, client: AsyncClient, experiment_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def token(self: Connection, address: str) -> str:
        asked.append(found(self, address))
        return asked[-1]

    found = Connection._user_token
    monkeypatch.setattr(Connection, "_user_token", token)
    monkeypatch.setattr(sys.modules["hopyard._net.rpc.channel"], "TOKEN_SECONDS", 0.0)
    await client.create(experiment_file)
    before = len(asked)
    await client.experiments()
    assert len(asked) > before


async def test_what_is_not_there(client: AsyncClient, experiment_file: Path) -> None:
    with pytest.raises(NotFound, match="no experiment 'nobody'"):
        await client.get("nobody")
    created = await client.create(experiment_file)
    with pytest.raises(NotFound, match="no job '77'"):
        await client.curve(created, "77")


async def test_a_damaged_snapshot_is_not_unpacked(
    fake: FakeCluster, client: AsyncClient, experiment_file: Path, tmp_path: Path
) -> None:
    ended = await client.wait(await client.create(experiment_file), timeout=HANG_SECONDS)
    best = await client.best(ended)
    assert best is not None
    fake.blobs[best.snapshots[0].sha256] += b"!"
    with pytest.raises(DataLoss, match="has the hash"):
        await client.download(ended, to=tmp_path / "best")
    assert {entry.name for entry in os.scandir(tmp_path)} == {"code"}


async def test_a_cluster_that_is_away_for_a_moment_is_waited_for(experiment_file: Path, tmp_path: Path) -> None:
    first = FakeCluster(data=tmp_path)
    await first.start()
    async with AsyncClient(data=tmp_path, patience=HANG_SECONDS) as client:
        assert await client.experiments() == []
        await first.stop()
        second = FakeCluster(data=tmp_path)
        await second.start()
        try:
            created = await client.create(experiment_file)
            assert (await client.wait(created, timeout=HANG_SECONDS)).state is ExperimentState.COMPLETED
        finally:
            await second.stop()


async def test_nobody_there(tmp_path: Path) -> None:
    async with AsyncClient("127.0.0.1:9", token=new_token(CallerKind.USER).text, patience=0.1) as client:
        with pytest.raises(Unavailable, match=r"no answer from the cluster at 127.0.0.1:9"):
            await client.experiments()
    with pytest.raises(Unavailable, match="no cluster serves"):
        async with AsyncClient(data=tmp_path):
            pass
