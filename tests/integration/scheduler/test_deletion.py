"""Experiments are deleted with everything that only they use, and nothing else is."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hopyard.client import AsyncClient
from hopyard.client.local_cluster.embedded import EmbeddedCluster
from hopyard.client.types import Experiment, ExperimentState
from hopyard.errors import Conflict, HopyardError, InvalidInput, NotFound, Unavailable
from hopyard.policy.vocabulary import StreamId
from hopyard.v1 import appstat_pb2, appstat_pb2_grpc, experiment_pb2, experiment_pb2_grpc
from hopyard_appstat.database.blob_ownership import OwnedBlobs
from hopyard_engine.core.effects import Effect
from hopyard_engine.core.events import Event
from hopyard_scheduler.experiments.commands import ExperimentCommands
from hopyard_scheduler.experiments.deletion import ExperimentDeletion
from hopyard_scheduler.runtime.journal import Journal
from hopyard_scheduler.runtime.runtime import Runtime
from tests.access import channel_as
from tests.integration.scheduler.conftest import experiment, let_go
from tests.integration.scheduler.test_garbage_collection import Pieces, pieces, put, until
from tests.integration.scheduler.test_garbage_collection import client as cluster_client
from tests.timing import HANG_SECONDS

__all__ = ["cluster_client", "pieces"]


@pytest.fixture
async def client(cluster_client: AsyncClient) -> AsyncClient:
    return cluster_client


async def finished(client: AsyncClient, file: Path, **options: object) -> Experiment:
    made = await client.create(experiment(file, **options))  # type: ignore[arg-type]
    return await client.wait(made, HANG_SECONDS)


async def rows(pieces: Pieces, name: str) -> tuple[list[str], int]:
    """The streams of the journal, and the number of statistics of an experiment."""
    async with channel_as("user", pieces.appstat.address) as link:
        stub: appstat_pb2_grpc.AppStatServiceAsyncStub = appstat_pb2_grpc.AppStatServiceStub(link)
        streams = [one.stream for one in (await stub.ListStreams(appstat_pb2.ListStreamsRequest())).streams]
        page = await stub.QueryStatistics(appstat_pb2.QueryStatisticsRequest(experiment=name))
    return streams, len(page.statistics)


async def test_an_experiment_goes_with_everything_that_only_it_uses(
    pieces: Pieces, client: AsyncClient, tmp_path: Path
) -> None:
    await pieces.start_agent()
    made = await finished(client, tmp_path / "one")
    other = await finished(client, tmp_path / "two", jobs=1, more="generator: {name: random, seed: 7}")
    logs = tmp_path / "agent" / "logs" / "jobs"
    assert (logs / made.id).is_dir()
    own, theirs = await bundle_of(pieces, made), await bundle_of(pieces, other)
    assert own != theirs
    held = {one.sha256 for job in await client.jobs(other) for one in job.snapshots}
    (plan,) = await client.delete([made], dry_run=True)
    assert (plan.experiments, plan.jobs, plan.reports, plan.bundles) == ((made.id,), 3, 12, 1)
    assert plan.snapshots == 3
    assert min(plan.records, plan.journal_bytes, plan.snapshot_bytes, plan.bundle_bytes, plan.logs) > 0
    assert (await client.get(made)).id == made.id
    used = (await client.collect_garbage(dry_run=True)).experiments
    assert [one.experiments for one in used] == [(made.id,), (other.id,)]
    assert used[0] == plan

    assert await client.delete([made]) == [plan]
    with pytest.raises(NotFound):
        await client.get(made)
    assert [one.id for one in await client.experiments()] == [other.id]
    assert await rows(pieces, made.id) == (["cluster", other.id], 0)
    assert set(pieces.stored()) == held | {theirs}
    assert not (logs / made.id).exists()
    assert (logs / other.id).is_dir()
    await until(lambda: set(pieces.local()) == held)
    assert (await rows(pieces, other.id))[1] == 4
    with pytest.raises(NotFound):
        await client.delete([made])


async def bundle_of(pieces: Pieces, made: Experiment) -> str:
    assert pieces.scheduler is not None
    async with channel_as("user", pieces.scheduler.address) as link:
        stub: experiment_pb2_grpc.ExperimentServiceAsyncStub = experiment_pb2_grpc.ExperimentServiceStub(link)
        answer = await stub.GetExperiment(experiment_pb2.GetExperimentRequest(experiment=made.id))
    return answer.experiment.bundle


async def test_only_what_has_ended_is_deleted_or_by_force_what_is_paused(
    pieces: Pieces, client: AsyncClient, tmp_path: Path
) -> None:
    await pieces.start_agent()
    file = experiment(tmp_path / "slow", free=1, slow=60.0)
    made = await client.create(file)
    with pytest.raises(Conflict, match=f"is RUNNING; only ended experiments are deleted: run `hopyard stop {made.id}`"):
        await client.delete([made], force=True)
    await client.pause(made)
    let_go(file)
    await client.wait(made, HANG_SECONDS, until={ExperimentState.PAUSED})
    with pytest.raises(Conflict, match=f"is PAUSED and can continue; hopyard rm --force {made.id}"):
        await client.delete([made])
    assert (await client.get(made)).state is ExperimentState.PAUSED
    await client.delete([made], force=True)
    with pytest.raises(NotFound):
        await client.get(made)


async def test_a_group_is_deleted_as_a_whole(pieces: Pieces, client: AsyncClient, tmp_path: Path) -> None:
    file = experiment(tmp_path / "group", more="share: together")
    first, second = await client.create(file), await client.create(file)
    for one in (first, second):
        await client.stop(one)
    with pytest.raises(Conflict, match=rf"{second.id} shares its policy.* with {first.id} .*name it too"):
        await client.delete([second])
    (deleted,) = await client.delete([second, first])
    assert deleted.experiments == (first.id, second.id)
    assert await client.experiments() == []


@pytest.mark.parametrize("loaded", [True, False])
async def test_an_experiment_that_joins_a_group_during_its_deletion_keeps_the_group(
    pieces: Pieces, client: AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loaded: bool
) -> None:
    file = experiment(tmp_path / "group", more="share: together")
    first = await client.create(file)
    await client.pause(first)
    await client.wait(first, HANG_SECONDS, until={ExperimentState.PAUSED})
    stopped = ExperimentDeletion._stop_paused
    joined: list[Experiment] = []

    async def join(self: ExperimentDeletion, streams: Any) -> None:
        joined.append(second := await client.create(file))
        await client.stop(second)
        await stopped(self, streams)

    monkeypatch.setattr(ExperimentDeletion, "_stop_paused", join)
    if not loaded:
        monkeypatch.setattr("hopyard_scheduler.runtime.runtime.MAX_FINISHED", 0)
    with pytest.raises(Conflict):
        await client.delete([first], force=True)
    (second,) = joined
    assert {one.id for one in await client.experiments()} == {first.id, second.id}
    assert first.id in (await rows(pieces, first.id))[0]


async def test_snapshots_that_others_own_stay_for_them(pieces: Pieces, client: AsyncClient, tmp_path: Path) -> None:
    await pieces.start_agent()
    made = await finished(client, tmp_path / "one", jobs=1)
    (job,) = await client.jobs(made)
    (snapshot,) = job.snapshots
    async with channel_as("user", pieces.appstat.address) as link:
        stub: appstat_pb2_grpc.AppStatServiceAsyncStub = appstat_pb2_grpc.AppStatServiceStub(link)
        await stub.HasBlobs(appstat_pb2.HasBlobsRequest(sha256=[snapshot.sha256], owner="later"))
    (deleted,) = await client.delete([made])
    assert (deleted.snapshots, deleted.shared_snapshots, deleted.shared_with) == (0, 1, ("later",))
    assert pieces.stored() == [snapshot.sha256]


async def test_a_repeated_request_deletes_nothing_more(pieces: Pieces, client: AsyncClient, tmp_path: Path) -> None:
    made = await client.create(experiment(tmp_path / "one"))
    await client.stop(made)
    assert pieces.scheduler is not None
    async with channel_as("user", pieces.scheduler.address) as link:
        stub: experiment_pb2_grpc.ExperimentServiceAsyncStub = experiment_pb2_grpc.ExperimentServiceStub(link)
        request = experiment_pb2.DeleteExperimentsRequest(experiments=[made.id], request_id="once")
        first = await stub.DeleteExperiments(request)
        again = await stub.DeleteExperiments(request)
        assert first.deleted[0].records > 0
        assert [(list(one.experiments), one.records) for one in again.deleted] == [([made.id], 0)]
        with pytest.raises(HopyardError, match="request_id: is required"):
            await stub.DeleteExperiments(experiment_pb2.DeleteExperimentsRequest(experiments=[made.id]))
        long = experiment_pb2.DeleteExperimentsRequest(experiments=[made.id], request_id="r" * 257)
        with pytest.raises(InvalidInput, match="request_id: found 257 characters, allowed are at most 256"):
            await stub.DeleteExperiments(long)


async def test_a_node_that_was_away_deletes_its_logs_when_it_connects(
    pieces: Pieces, client: AsyncClient, tmp_path: Path
) -> None:
    await pieces.start_agent()
    made = await finished(client, tmp_path / "one", jobs=1)
    assert pieces.agent is not None
    await pieces.agent.stop()
    logs = tmp_path / "agent" / "logs" / "jobs" / made.id
    await until(lambda: not connected(pieces))
    (deleted,) = await client.delete([made])
    assert (deleted.logs, deleted.absent_nodes) == (0, ("n",))
    assert logs.is_dir()
    await pieces.start_agent()
    await until(lambda: not logs.exists())


def connected(pieces: Pieces) -> bool:
    assert pieces.scheduler is not None
    return bool(pieces.scheduler._sessions.connected())


async def test_a_restarted_scheduler_completes_a_deletion(
    pieces: Pieces, client: AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await client.create(experiment(tmp_path / "one"))
    await client.stop(made)
    sha256 = await put(pieces, b"a snapshot", made.id)

    async def unavailable(self: OwnedBlobs, owner: str, hashes: object = ()) -> None:
        raise Unavailable("the store is away")

    with monkeypatch.context() as patched:
        patched.setattr(OwnedBlobs, "release", unavailable)
        deleting = asyncio.create_task(client.delete([made]))
        await until(lambda: gone(client, made))
        assert pieces.scheduler is not None
        await pieces.scheduler.stop(0.1)
        deleting.cancel()
    assert sha256 in pieces.stored()
    await pieces.start_scheduler()
    await until(lambda: not pieces.stored())
    assert await client.experiments() == []


async def gone(client: AsyncClient, made: Experiment) -> bool:
    return made.id not in {one.id for one in await client.experiments()}


async def test_a_killed_cluster_has_an_experiment_whole_or_not_at_all(tmp_path: Path) -> None:
    data, file = tmp_path / "data", experiment(tmp_path / "one", jobs=2)
    cluster = EmbeddedCluster(data, slots=1)
    async with AsyncClient(server=await cluster.start(), patience=HANG_SECONDS) as client:
        made = await client.create(file)
        await client.wait(made, HANG_SECONDS)
        deleting = asyncio.create_task(client.delete([made]))
        await until(lambda: gone(client, made))
        cluster.kill()
        deleting.cancel()
        await asyncio.gather(deleting, return_exceptions=True)
        await cluster.stop()
    again = EmbeddedCluster(data, slots=1)
    try:
        async with AsyncClient(server=await again.start(), patience=HANG_SECONDS) as client:
            assert await client.experiments() == []
            await until(lambda: not list((data / "store").glob("*/*")))
            await until(lambda: not list((data / "agent" / "logs" / "jobs").glob("*")))
            await until(lambda: not list((data / "agent" / "snapshots").glob("[!.]*")))
    finally:
        await again.stop()


async def rm(data: Path, *options: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hopyard.cli.main", "rm", "--data", str(data), *options),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_the_command_shows_its_plan_and_asks(tmp_path: Path) -> None:
    data, file = tmp_path / "data", experiment(tmp_path / "one", jobs=2)
    cluster = EmbeddedCluster(data, slots=1)
    async with AsyncClient(server=await cluster.start(), patience=HANG_SECONDS) as client:
        made = await client.create(file)
        await client.wait(made, HANG_SECONDS)
    await cluster.stop()
    code, out, err = await rm(data, made.id)
    assert (code, out) == (2, "")
    assert "nobody can be asked here: give --yes to delete, or --dry-run" in err
    code, out, _ = await rm(data, "counting", "--dry-run", "--json")
    shown = json.loads(out)
    assert (code, shown["deleted"], shown["experiments"][0]["experiments"]) == (0, False, [made.id])
    assert shown["bytes"] > 0
    assert list((data / "agent" / "snapshots").glob("[!.]*"))
    code, out, err = await rm(data, made.id, "--yes")
    assert (code, out.splitlines()[-1]) == (0, f"deleted {made.id}"), err
    assert list((data / "agent" / "snapshots").glob("[!.]*")) == []
    code, _, err = await rm(data, made.id, "--yes")
    assert (code, f"there is no experiment '{made.id}'" in err) == (1, True), err


async def test_a_client_that_gives_up_does_not_interrupt_a_deletion(
    pieces: Pieces, client: AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pieces.start_agent()
    first, second = await finished(client, tmp_path / "one", jobs=1), await finished(client, tmp_path / "two", jobs=1)
    append, appending, go = Journal._append, asyncio.Event(), asyncio.Event()

    async def held(self: Journal, request: appstat_pb2.AppendJournalRequest, *args: Any) -> None:
        await append(self, request, *args)
        if request.deleted:  # It is written, and the journal's end is not noted yet.
            appending.set()
            await go.wait()

    delete, cancelled = ExperimentDeletion.delete, asyncio.Event()

    async def watched(self: ExperimentDeletion, *args: Any, **options: Any) -> Any:
        try:
            return await delete(self, *args, **options)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    monkeypatch.setattr(ExperimentDeletion, "delete", watched)
    monkeypatch.setattr(Journal, "_append", held)
    deleting = asyncio.create_task(client.delete([first]))
    await appending.wait()
    deleting.cancel()
    await asyncio.gather(deleting, return_exceptions=True)
    await cancelled.wait()
    go.set()
    assert await client.delete([second])  # The scheduler's cluster stream is where its journal is.
    assert await client.experiments() == []


async def test_a_command_for_an_experiment_that_is_being_deleted_does_not_find_it(
    pieces: Pieces, client: AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command finds the row and waits for the deletion, which then leaves no journal."""
    await pieces.start_agent()
    monkeypatch.setattr("hopyard_scheduler.runtime.runtime.MAX_FINISHED", 0)
    made = await finished(client, tmp_path / "one", jobs=1)
    append, loading, waiting = Journal._append, ExperimentCommands.loading, asyncio.Event()
    calls: list[asyncio.Task[Experiment]] = []

    async def held(self: Journal, request: appstat_pb2.AppendJournalRequest, *args: Any) -> None:
        if request.deleted:
            monkeypatch.setattr(ExperimentCommands, "loading", watched)
            calls.append(asyncio.create_task(client.pause(made)))
            await waiting.wait()
        await append(self, request, *args)

    def watched(self: ExperimentCommands, stream: StreamId) -> asyncio.Lock:
        waiting.set()
        return loading(self, stream)

    monkeypatch.setattr(Journal, "_append", held)
    assert await client.delete([made])
    with pytest.raises(NotFound, match=f"there is no experiment '{made.id}'"):
        await calls[0]


@pytest.mark.parametrize("deleted", [False, True])
async def test_commands_load_streams_again_that_left_memory_before_the_engine_handled_them(
    pieces: Pieces, client: AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deleted: bool
) -> None:
    await pieces.start_agent()
    made = await finished(client, tmp_path / "one", jobs=1)
    apply = Runtime.apply

    async def late(self: Runtime, event: Event) -> list[Effect]:
        monkeypatch.setattr(Runtime, "apply", apply)
        if deleted:
            await client.delete([made])
        else:
            self.core.forget(event.stream)  # type: ignore[union-attr]
        return await apply(self, event)

    monkeypatch.setattr(Runtime, "apply", late)
    if deleted:
        with pytest.raises(NotFound, match=f"there is no experiment '{made.id}'"):
            await client.extend(made, jobs=1)
    else:
        await client.extend(made, jobs=1)
        assert len(await client.jobs(await client.wait(made, HANG_SECONDS))) == 2
