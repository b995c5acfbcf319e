"""An experiment goes from one cluster to another, and is there what it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hopyard.client import AsyncClient
from hopyard.client.types import Experiment, ExperimentState, JobState
from tests.integration.scheduler.conftest import experiment
from tests.integration.travel.conftest import Cluster

PAUSED = {ExperimentState.PAUSED}


async def told(client: AsyncClient, name: str) -> dict[str, Any]:
    """What people see of an experiment, but for the places where things lie and how long it took."""
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
    return await client.wait(await client.create(file), 60)


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
        after = await client.wait(made.id, 60)
        jobs = await client.jobs(made.id)
    assert after.state is ExperimentState.COMPLETED
    assert [(j.state, j.position) for j in jobs] == [(JobState.COMPLETED, 5)] * 3
    # They went on from the snapshots that came along: nothing was trained again.
    assert [j.attempt for j in jobs] == [2, 2, 1]


async def test_a_paused_experiment_goes_on_in_another_cluster_and_survives_its_restart(
    cluster: Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "it.hopyard"
    async with cluster("old") as client:
        made = await client.create(experiment(tmp_path / "code", jobs=2, length=30, pace=0.02))
        async for change in client.watch(made):
            if getattr(change, "position", 0) > 3:
                break
        await client.pause(made)
        await client.wait(made, 60, until=PAUSED)
        before = await told(client, made.id)
        await client.export_experiment(made, file)
    async with cluster("new") as client:
        imported = await client.import_experiment(file)
        assert imported.experiment.state is ExperimentState.PAUSED
        assert await told(client, made.id) == before
    async with cluster("new") as client:
        assert await told(client, made.id) == before
        await client.resume(made.id)
        after = await client.wait(made.id, 60)
        statistics = await client.statistics(made.id)
    assert after.state is ExperimentState.COMPLETED
    assert [s.report.position for s in statistics] == [*range(1, 31)] * 2
    assert statistics[: len(before["statistics"])][0] == before["statistics"][0]


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
        await client.wait("again-2", 60)
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
        await client.wait(made.id, 60)
        assert [s.report.position for s in await client.statistics(made.id)] == [1, 2, 3, 4]
