"""Tests that commands of users and time limits take effect at once, even if many jobs wait for their configurations."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hopyard.client import AsyncClient
from hopyard.client.types import Experiment, ExperimentState
from tests.integration.scheduler.conftest import experiment
from tests.timing import HANG_SECONDS

MANY = """
policy: {name: 'tests.integration.scheduler.policies:Many'}
generator: {name: 'tests.integration.scheduler.generators:Learning'}
"""
JOBS = 5_000  # Generating their configurations takes more than two minutes.


async def over(client: AsyncClient, found: Experiment) -> Experiment:
    """Wait until the experiment has ended and return it."""
    async with asyncio.timeout(HANG_SECONDS):
        while not (found := await client.get(found)).state.ended:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
    return found


async def test_stop_acts_while_thousands_of_jobs_wait_for_the_generator(client: AsyncClient, tmp_path: Path) -> None:
    found = await client.create(experiment(tmp_path / "e", jobs=JOBS, pace=0.01, more=MANY))
    await client.stop(found)
    stopped = await over(client, found)
    assert (stopped.state, stopped.reason) == (ExperimentState.STOPPED, "stopped by a person")
    # Another experiment does not wait for the requests to the first one's generator either.
    other = await over(client, await client.create(experiment(tmp_path / "f", jobs=1)))
    assert other.state is ExperimentState.COMPLETED


async def test_max_time_ends_while_thousands_of_jobs_wait_for_the_generator(
    client: AsyncClient, tmp_path: Path
) -> None:
    file = experiment(tmp_path / "e", jobs=JOBS, pace=0.01, more=MANY)
    file.write_text(file.read_text().replace("stop: {", "stop: {max_time: 1s, "))
    ended = await over(client, await client.create(file))
    assert (ended.state, ended.reason) == (ExperimentState.COMPLETED, "its time of 1 s is over")
