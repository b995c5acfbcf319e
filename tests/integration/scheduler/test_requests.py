"""Tests of clients that request configurations, trained up to given positions, from a running experiment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import ExperimentState, Job, JobState
from hopyard.errors import Conflict, InvalidInput, NotFound
from tests.integration.scheduler.conftest import experiment
from tests.timing import HANG_SECONDS

STAGE_TREE = "policy: {name: stage_tree, save_every: 1}"


async def until(client: AsyncClient, name: str, comes: Callable[[dict[str, Job]], bool]) -> dict[str, Job]:
    """Wait until the jobs satisfy `comes`; return them by id."""
    async for _ in client.watch(name):
        jobs = {job.id: job for job in await client.jobs(name)}
        if comes(jobs):
            return jobs
    raise AssertionError("the experiment is over")


async def test_what_is_known_is_answered_at_once_and_the_rest_trained_from_there(
    client: AsyncClient, tmp_path: Path
) -> None:
    # Its own job trains for longer than the test takes.
    file = experiment(tmp_path / "e", jobs=1, length=300, pace=0.05, more=STAGE_TREE, free=25)
    created = await client.create(file)
    name = created.id
    known = (await until(client, name, lambda jobs: "1" in jobs and jobs["1"].position >= 6))["1"].hyperparameters
    # The known configuration at a later position waits for its run; another x is trained by its own run.
    same, other = await client.request_all(name, [(known, 5), ({**known, "x": 0.25}, 3)])
    again = await client.request(name, known, 20, request_id="again")
    jobs = await until(
        client, name, lambda jobs: all(job.state is JobState.COMPLETED for job in jobs.values() if job.id != "1")
    )
    assert [(jobs[job.id].position, jobs[job.id].attempt) for job in (same, other, again)] == [(5, 0), (3, 1), (20, 0)]
    async with asyncio.timeout(HANG_SECONDS):  # Statistics are readable a little after the state.
        while len(await client.statistics(name, other.id)) < 3:  # noqa: ASYNC110 - another process writes
            await asyncio.sleep(0.02)
    curve = [s.report.metrics["accuracy"] for s in await client.statistics(name, other.id)]
    assert curve == pytest.approx([0.25, 0.5, 0.75])
    assert jobs["1"].state is JobState.RUNNING
    # The id identifies the request.
    repeated = await client.request(name, known, 20, request_id="again")
    assert (repeated.id, repeated.state) == (again.id, JobState.COMPLETED)
    with pytest.raises(Conflict, match="'again' asked for job"):
        await client.request(name, known, 21, request_id="again")
    assert len(await client.jobs(name)) == 4
    await client.stop(name)
    await client.wait(name, timeout=HANG_SECONDS)
    assert (await client.request(name, known, 20, request_id="again")).id == again.id
    with pytest.raises(Conflict, match=f"experiment {name} is STOPPED"):
        await client.request(name, known, 30)


async def test_what_cannot_be_is_refused_and_nothing_is_asked_for(client: AsyncClient, tmp_path: Path) -> None:
    created = await client.create(experiment(tmp_path / "e", jobs=1, length=300, pace=1.0, more=STAGE_TREE))
    good = {"x": 0.5, "pace": 1.0}
    with pytest.raises(
        InvalidInput, match=r"jobs\[1\]\.hyperparameters: .*x.*\n.*jobs\[2\]\.position: must be in 1\.\.300"
    ):
        await client.request_all(created.id, [(good, 3), ({"x": 7, "pace": 1.0}, 3), (good, 301)])
    with pytest.raises(InvalidInput, match="request_ids: give one for each of the 1 requests"):
        await client.request_all(created.id, [(good, 3)], request_ids=["a", "b"])
    assert len(await client.jobs(created.id)) <= 1
    with pytest.raises(NotFound):
        await client.request("nothing", good, 3)
    await client.stop(created.id)
    plain = await client.create(experiment(tmp_path / "p", jobs=1, length=300, pace=1.0))
    with pytest.raises(Conflict, match="its policy default serves no requests; a stage_tree does"):
        await client.request(plain.id, good, 3)
    await client.stop(plain.id)
    assert (await client.wait(plain.id, timeout=HANG_SECONDS)).state is ExperimentState.STOPPED
