"""Test of population based training in a real cluster."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import ExperimentState, Job, JobState
from hopyard.errors import InvalidInput
from hopyard.spec import configuration_seed
from hopyard_tools.commands.replay import replay
from tests.e2e import failures
from tests.integration.scheduler.conftest import experiment
from tests.timing import HANG_SECONDS

SEED = 11


def walked(lineage: list[Job]) -> list[float]:
    """Compute the random walk of a job without a cluster: each ancestor's part with its own step, all with the first one's seed."""
    rng = random.Random(configuration_seed(SEED, lineage[0].hyperparameters))
    ends = [job.fork_position for job in lineage[1:]] + [lineage[-1].position]
    found, x = list[float](), 0.0
    for job, end in zip(lineage, ends, strict=True):
        while len(found) < end:
            x += job.hyperparameters["step"] * rng.gauss(0.0, 1.0)
            found.append(x)
    return found


async def test_a_copy_goes_on_from_its_parents_snapshot_bit_for_bit(
    client: AsyncClient, address: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = failures.experiment(
        tmp_path / "walk",
        length=8,
        space={"step": {"uniform": [0.1, 1.0]}},
        generator={"name": "random", "seed": 5},
        seed=SEED,
        policy={"name": "pbt", "population": 4, "interval": 2, "truncation": 0.5, "frozen": ["fail"]},
        stop={"jobs": 4},
        resources={"slots": 2},
    )
    created = await client.create(file)
    ended = await client.wait(created.id, timeout=HANG_SECONDS)
    assert ended.state is ExperimentState.COMPLETED, ended.reason
    jobs = {job.id: job for job in await client.jobs(created.id)}
    complete = [job for job in jobs.values() if job.state is JobState.COMPLETED]
    assert len(complete) == 4, "each replaced member has a copy in its place"
    copies = [job for job in complete if job.parent]
    assert copies, "the seed gives members that fall behind"
    for job in complete:
        lineage = [job]
        while lineage[0].parent:
            lineage.insert(0, jobs[lineage[0].parent])
        curve = {point.position: point.value for point in await client.curve(created.id, job.id)}
        expected = dict(enumerate(walked(lineage), 1))
        assert curve == {position: expected[position] for position in curve}
        assert set(curve) == set(range(1, 9))
    for job in copies:
        assert job.hyperparameters["fail"] == "no"
        assert 0.1 <= job.hyperparameters["step"] <= 1.0
    capfd.readouterr()
    assert await replay(created.id, None, address, None, False)


async def test_what_is_frozen_by_a_wrong_name_is_refused(client: AsyncClient, tmp_path: Path) -> None:
    file = experiment(tmp_path / "e", jobs=2, more="policy: {name: pbt, frozen: [y]}")
    with pytest.raises(InvalidInput, match="frozen names 'y', which is not a parameter of the space"):
        await client.create(file)
