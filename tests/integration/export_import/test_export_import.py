"""Tests of export and import: an imported experiment equals the exported one."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from hopyard._runtime.snapshot_folder import remove
from hopyard.client import AsyncClient
from hopyard.client.transfer.archive import ArchiveReader, ArchiveWriter
from hopyard.client.transfer.blobs import put_chunks
from hopyard.client.types import Experiment, ExperimentState, JobReport, JobState
from hopyard.errors import AlreadyExists, Conflict, DataLoss, InvalidInput, NotFound
from hopyard.v1 import appstat_pb2, appstat_pb2_grpc, experiment_pb2
from hopyard_scheduler.runtime.journal import Journal
from tests.access import channel_as
from tests.integration.export_import.conftest import Cluster
from tests.integration.scheduler.conftest import experiment, let_go
from tests.timing import HANG_SECONDS

PAUSED = {ExperimentState.PAUSED}


async def told(client: AsyncClient, name: str) -> dict[str, Any]:
    """Return what clients see of an experiment, without locations and total times."""
    found = await client.get(name)
    jobs = await client.jobs(name)
    return {
        "state": found.state,
        "name": found.name,
        "best": (found.best_job, found.best_value, found.best_position),
        "created": found.created_at,
        "spec": found.spec,
        "jobs": [
            (j.id, j.state, j.position, j.hyperparameters, j.best_value, j.seconds, j.attempt, j.last_value)
            for j in jobs
        ],
        "snapshots": [(s.job, s.position, s.sha256) for j in jobs for s in j.snapshots],
        "statistics": await client.statistics(name),
    }


async def run_to_the_end(client: AsyncClient, file: Path) -> Experiment:
    return await client.wait(await client.create(file), HANG_SECONDS)


async def test_a_finished_experiment_is_there_as_it_was_and_can_be_extended(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "it.hopyard"
    async with cluster("old") as client:
        made = await run_to_the_end(client, experiment(tmp_path / "code", jobs=2, length=3))
        before = await told(client, made.id)
        exported = await client.export_experiment(made, file)
    assert exported.experiments == (made.id,)
    assert exported.left_behind == ()
    assert exported.statistics == len(before["statistics"]) == 6
    async with cluster("new") as client:
        imported = await client.import_experiment(file)
        assert imported.experiment.id == made.id
        assert await told(client, made.id) == before
        got = await client.download(made.id, to=tmp_path / "best")
        assert (got.folder / "state.json").exists() or any(got.folder.rglob("state.json"))
        await client.extend(made.id, jobs=1, max_iterations=5)
        after = await client.wait(made.id, HANG_SECONDS)
        jobs = await client.jobs(made.id)
    assert after.state is ExperimentState.COMPLETED
    assert [(j.state, j.position) for j in jobs] == [(JobState.COMPLETED, 5)] * 3
    # The jobs continued from the imported snapshots: nothing was trained again.
    assert [j.attempt for j in jobs] == [2, 2, 1]


async def test_a_paused_experiment_goes_on_in_another_cluster_and_survives_its_restart(
    cluster: Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "it.hopyard"
    async with cluster("old") as client:
        code = experiment(tmp_path / "code", jobs=2, length=30, pace=0.02, free=5)
        made = await client.create(code)
        async for change in client.watch(made):
            if getattr(change, "position", 0) > 3:
                break
        await client.pause(made)
        await client.wait(made, HANG_SECONDS, until=PAUSED)
        before = await told(client, made.id)
        await client.export_experiment(made, file)
    let_go(code)
    async with cluster("new") as client:
        imported = await client.import_experiment(file)
        assert imported.experiment.state is ExperimentState.PAUSED
        assert await told(client, made.id) == before
    async with cluster("new") as client:
        assert await told(client, made.id) == before
        await client.resume(made.id)
        after = await client.wait(made.id, HANG_SECONDS)
        statistics = await client.statistics(made.id)
    assert after.state is ExperimentState.COMPLETED
    assert [s.report.position for s in statistics] == [*range(1, 31)] * 2
    assert statistics[: len(before["statistics"])][0] == before["statistics"][0]


async def test_an_export_waits_for_the_journal_of_what_has_just_come_to_rest(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Show that an export waits for the journal, because clients see a state before its journal record is appended."""
    append = Journal.append

    async def slowly(self: Journal, *what: Any) -> None:
        await asyncio.sleep(0.3)
        await append(self, *what)

    async with cluster("old") as client:
        code = experiment(tmp_path / "code", jobs=1, length=30, free=0)
        made = await client.create(code)
        async for change in client.watch(made):
            if isinstance(change, JobReport):
                break
        monkeypatch.setattr(Journal, "append", slowly)
        await client.pause(made)
        async with asyncio.timeout(HANG_SECONDS):
            while (await client.get(made)).state is not ExperimentState.PAUSED:  # noqa: ASYNC110 - a watch is too late for this
                await asyncio.sleep(0.01)
        await client.export_experiment(made, tmp_path / "it.hopyard")
        monkeypatch.undo()
    let_go(code)
    async with cluster("new") as client:
        imported = await client.import_experiment(tmp_path / "it.hopyard")
        assert imported.experiment.state is ExperimentState.PAUSED
        await client.resume(made.id)
        assert (await client.wait(made.id, HANG_SECONDS)).state is ExperimentState.COMPLETED


async def test_another_id_beside_the_original_trains_on_its_own(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "it.hopyard"
    async with cluster("one") as client:
        made = await run_to_the_end(client, experiment(tmp_path / "code", jobs=2, length=3))
        await client.export_experiment(made, file)
        imported = await client.import_experiment(file, "again-2")
        assert imported.experiment.id == "again-2"
        one, two = await told(client, made.id), await told(client, "again-2")
        assert one == two
        await client.extend("again-2", max_iterations=6)
        await client.wait("again-2", HANG_SECONDS)
        assert await told(client, made.id) == one
        assert [j.position for j in await client.jobs("again-2")] == [6, 6]


async def test_without_snapshots_results_are_there_and_jobs_begin_anew(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "it.hopyard"
    async with cluster("old") as client:
        made = await run_to_the_end(client, experiment(tmp_path / "code", jobs=1, length=3))
        before = await told(client, made.id)
        exported = await client.export_experiment(made, file, snapshots=False)
        assert len(exported.left_behind) == len(before["snapshots"]) > 0
    async with cluster("new") as client:
        imported = await client.import_experiment(file)
        assert imported.snapshots == 0
        assert await told(client, made.id) == {**before, "snapshots": []}
        await client.extend(made.id, max_iterations=4)
        await client.wait(made.id, HANG_SECONDS)
        assert [s.report.position for s in await client.statistics(made.id)] == [1, 2, 3, 4]


async def test_what_the_store_has_not_comes_from_its_node_or_is_told(cluster: Cluster, tmp_path: Path) -> None:
    async with cluster("old") as client:
        made = await run_to_the_end(client, experiment(tmp_path / "code", jobs=1, length=3))
        snapshots = [s.sha256 for job in await client.jobs(made) for s in job.snapshots]
        request = appstat_pb2.DeleteBlobsRequest(owner=made.id, sha256=snapshots)
        async with channel_as("service", (await client.cluster()).appstat_address) as opened:
            store: appstat_pb2_grpc.AppStatServiceAsyncStub = appstat_pb2_grpc.AppStatServiceStub(opened)
            assert (await store.DeleteBlobs(request)).sha256 == snapshots
        exported = await client.export_experiment(made, tmp_path / "it.hopyard")
        assert exported.snapshots == len(snapshots) > 0
        for snapshot in (tmp_path / "old" / "agent" / "snapshots").iterdir():
            remove(snapshot)
        poorer = await client.export_experiment(made, tmp_path / "poorer.hopyard")
        assert [s.sha256 for s in poorer.left_behind] == snapshots
    async with cluster("new") as client:
        assert (await client.import_experiment(tmp_path / "poorer.hopyard", "poorer")).snapshots == 0
        assert (await client.import_experiment(tmp_path / "it.hopyard")).snapshots == len(snapshots)


# -------------------------------------------------------------------------------------------------------- refused imports


async def everything(client: AsyncClient) -> tuple[list[str], list[str]]:
    """Return the sorted ids of the experiments, and the hashes of all blobs."""
    async with channel_as("service", (await client.cluster()).appstat_address) as opened:
        store: appstat_pb2_grpc.AppStatServiceAsyncStub = appstat_pb2_grpc.AppStatServiceStub(opened)
        blobs = await store.ListBlobs(appstat_pb2.ListBlobsRequest())
    return sorted(one.id for one in await client.experiments()), [blob.sha256 for blob in blobs.blobs]


async def test_what_runs_is_not_exported(cluster: Cluster, tmp_path: Path) -> None:
    async with cluster("old") as client:
        made = await client.create(experiment(tmp_path / "code", jobs=1, length=1000, pace=0.5))
        with pytest.raises(Conflict, match=f"{made.id} is RUNNING; only paused or ended experiments .*: hopyard pause"):
            await client.export_experiment(made, tmp_path / "it.hopyard")
        await client.stop(made)
    assert not [name for name in os.listdir(tmp_path) if "hopyard" in name or "export" in name]


async def test_nothing_is_changed_by_what_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    file, other = tmp_path / "it.hopyard", tmp_path / "other.hopyard"
    async with cluster("old") as client:
        made = await run_to_the_end(client, experiment(tmp_path / "code", jobs=1, length=3))
        await client.export_experiment(made, file)
        before = await everything(client)
        with pytest.raises(AlreadyExists, match=f"experiment {made.id} exists already; .* --as ID"):
            await client.import_experiment(file)
        assert await everything(client) == before
    async with cluster("new") as client:
        whole = file.read_bytes()
        other.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(DataLoss):
            await client.import_experiment(other)
        with pytest.raises(InvalidInput, match=r"id: found '\.\./up'"):
            await client.import_experiment(file, "../up")
        other.unlink()
        _rewrite(file, other, b'"kind":"Answered"', b'"kind":"Answeped"')
        with pytest.raises(InvalidInput, match=r"journal of .*, record \d+: .* unknown kind 'Answeped'"):
            await client.import_experiment(other)
        for version, found in (
            (b"", "no format version"),
            (b'"version":1,', "format version 1"),
            (b'"version":3,', "format version 3"),
        ):
            other.unlink()
            _rewrite(file, other, b'"version":2,', version)
            with pytest.raises(InvalidInput, match=f"record 1: found {found}, supported is version 2; "):
                await client.import_experiment(other)
        assert await everything(client) == ([], [bundle_of(made)])
        # A refused import does not prevent a later one.
        assert (await client.import_experiment(file)).experiment.id == made.id


def bundle_of(made: Experiment) -> str:
    """Return the hash of the bundle: it stays in the store until garbage collection deletes it."""
    return made.bundle


def _rewrite(file: Path, other: Path, old: bytes, new: bytes) -> None:
    """Write a copy of the archive whose journal has `new` in place of `old`, like a malicious archive."""
    with ArchiveReader(file) as archive, ArchiveWriter(other) as changed:
        for name in archive.manifest.members:
            data = b"".join(archive.unpacked(name))
            changed.add(name, [data.replace(old, new) if name == "journal.jsonl" else data])
        about = archive.manifest.about
        changed.finish({key: about[key] for key in about if key not in ("format", "version", "members")})


async def test_a_call_again_is_answered_with_what_the_first_one_made(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "it.hopyard"
    async with cluster("old") as client:
        made = await run_to_the_end(client, experiment(tmp_path / "code", jobs=1, length=3))
        await client.export_experiment(made, file)
    async with cluster("new") as client:
        connection = await client._connection()
        with ArchiveReader(file) as archive:
            journal = archive.manifest.members["journal.jsonl"].sha256
            request = experiment_pb2.ImportExperimentRequest(journal=journal, request_id="r")
            await put_chunks(connection, journal, "o", lambda: archive.packed("journal.jsonl"))
            with pytest.raises(Conflict, match=f"its code {made.bundle} is not in the store"):
                await connection.experiments.ImportExperiment(request)
            assert await client.experiments() == []
            await put_chunks(connection, made.bundle, "bundle", lambda: archive.unpacked(f"bundles/{made.bundle}"))
        first = await connection.experiments.ImportExperiment(request)
        assert (first.experiment.id, first.snapshots) == (made.id, 0)
        assert await connection.experiments.ImportExperiment(request) == first
        with pytest.raises(AlreadyExists):
            await connection.experiments.ImportExperiment(
                experiment_pb2.ImportExperimentRequest(journal=journal, request_id="another")
            )
        with pytest.raises(InvalidInput, match="request_id: is required"):
            await connection.experiments.ImportExperiment(experiment_pb2.ImportExperimentRequest(journal=journal))
        with pytest.raises(NotFound):
            await connection.experiments.ImportExperiment(
                experiment_pb2.ImportExperimentRequest(journal="0" * 64, request_id="x")
            )


async def test_a_group_travels_as_one_and_keeps_its_ids(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "it.hopyard"
    async with cluster("old") as client:
        more = "share: us"
        code = experiment(tmp_path / "a", jobs=1, length=20, more=more, free=0)
        one = await client.create(code)
        two = await client.create(experiment(tmp_path / "b", jobs=1, length=2, more=more))
        assert two.group == one.id
        let_go(code)
        for each in (one, two):
            await client.wait(each, HANG_SECONDS)
        before = [await told(client, each.id) for each in (one, two)]
        exported = await client.export_experiment(two, file)
        assert set(exported.experiments) == {one.id, two.id}
    async with cluster("new") as client:
        with pytest.raises(InvalidInput, match="so they keep their ids"):
            await client.import_experiment(file, "another")
        await client.import_experiment(file)
        assert [await told(client, each.id) for each in (one, two)] == before
        await client.extend(two.id, jobs=1)
        after = await client.wait(two.id, HANG_SECONDS)
        assert after.jobs == {"COMPLETED": 2}
