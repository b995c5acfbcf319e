"""Successive halving in a real cluster: who is promoted goes on from where it was, also long after the search had ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import ExperimentState, JobState
from hopyard.errors import InvalidInput
from hopyard_scheduler.commands.replay import replay
from tests.integration.scheduler.conftest import experiment

ASHA = "policy: {name: asha, eta: 2, brackets: [0]}\ngenerator: {name: random, seed: 11}"


async def positions(client: AsyncClient, name: str) -> dict[str, list[int]]:
    """Of each job the positions of its reports, in the order in which they came."""
    return {
        job.id: [statistic.report.position for statistic in await client.statistics(name, job.id)]
        for job in await client.jobs(name)
    }


@pytest.mark.timeout(120)
async def test_promoted_jobs_go_on_and_an_extended_search_wakes_who_waits(
    client: AsyncClient, address: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    created = await client.create(experiment(tmp_path / "e", jobs=6, length=4, more=ASHA))
    ended = await client.wait(created.id, timeout=90)
    assert ended.state is ExperimentState.COMPLETED
    before = await positions(client, created.id)
    assert {len(reached) for reached in before.values()} == {1, 2, 4}
    jobs = {job.id: job for job in await client.jobs(created.id)}
    assert {jobs[job].state for job, reached in before.items() if len(reached) < 4} == {JobState.SUSPENDED}

    await client.extend(created.id, jobs=6)
    ended = await client.wait(created.id, timeout=90)
    assert ended.state is ExperimentState.COMPLETED
    after = await positions(client, created.id)
    assert len(after) == 12
    # With this seed job 6 is the fourth of the first six, whatever the order of the reports, and the fifth of all twelve.
    assert len(before["6"]) == 1
    assert len(after["6"]) > 1
    for reached in after.values():
        assert reached == list(range(1, len(reached) + 1)), "nothing is trained twice"
    capfd.readouterr()
    assert await replay(created.id, None, address, None, False)


@pytest.mark.timeout(60)
async def test_terms_that_make_no_rungs_are_refused_when_the_experiment_is_created(
    client: AsyncClient, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match=r"policy asha: brackets is \[0, 3\], but the rungs are at 1, 4: .* is 1"):
        await client.create(experiment(tmp_path / "e", length=4, more="policy: {name: asha, brackets: [0, 3]}"))


@pytest.mark.timeout(90)
async def test_bohb_brings_its_generator(client: AsyncClient, tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="the generator tpe needs the extra hopyard[optuna]")
    created = await client.create(experiment(tmp_path / "e", jobs=6, length=2, more="policy: {name: bohb, eta: 2}"))
    assert (await client.get(created.id)).spec["generator"]["name"] == "tpe"
    assert (await client.wait(created.id, timeout=80)).state is ExperimentState.COMPLETED
    states = {job.state for job in await client.jobs(created.id)}
    assert states == {JobState.COMPLETED, JobState.TERMINATED}
