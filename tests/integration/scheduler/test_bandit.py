"""Test of the bandit policy in a real cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import ExperimentState, JobState
from hopyard_tools.commands.replay import replay
from tests.integration.scheduler.conftest import experiment
from tests.timing import HANG_SECONDS

BANDIT = "policy: {name: bandit, evaluation_boundary: 2}\ngenerator: {name: random, seed: 4}"


async def test_what_falls_behind_ends_at_a_boundary(
    client: AsyncClient, address: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    created = await client.create(experiment(tmp_path / "e", jobs=8, length=7, more=BANDIT))
    ended = await client.wait(created.id, timeout=HANG_SECONDS)
    assert ended.state is ExperimentState.COMPLETED
    jobs = await client.jobs(created.id)
    best = max(job.best_value or 0.0 for job in jobs)
    dropped = [job for job in jobs if job.state is JobState.TERMINATED]
    assert dropped, "the seed gives a job that is behind"
    for job in jobs:
        reports = [statistic.report for statistic in await client.statistics(created.id, job.id)]
        assert job.best_value is not None
        if job in dropped:
            # The decision takes effect at the boundary: the job has trained no unit more.
            assert len(reports) in (2, 4, 6)
            assert job.best_value * 1.5 <= best
        else:
            assert (job.state, len(reports)) == (JobState.COMPLETED, 7)
    capfd.readouterr()
    assert await replay(created.id, None, address, None, False)
