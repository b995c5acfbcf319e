"""Tests of how commands find their cluster and their experiment."""

import pytest

from hopyard.cli.connect import find, find_with_job
from hopyard.cli.errors import WrongUse
from hopyard.client.async_client import AsyncClient
from hopyard.client.types import Experiment, ExperimentState, Job, JobState, Metric
from hopyard.errors import Conflict, NotFound

pytestmark = pytest.mark.quick


async def test_names_of_experiments_are_ids_for_destruction_and_are_no_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [Experiment(name, "digits", ExperimentState.COMPLETED, Metric("loss", "min")) for name in ("d-2", "d-1")]

    async def get(self: AsyncClient, name: str) -> Experiment:
        raise NotFound(name)

    async def jobs(self: AsyncClient, of: Experiment) -> list[Job]:
        return [Job(of.id, "7", JobState.RUNNING)]

    async def experiments(self: AsyncClient) -> list[Experiment]:
        return found

    monkeypatch.setattr(AsyncClient, "get", get)
    monkeypatch.setattr(AsyncClient, "jobs", jobs)
    monkeypatch.setattr(AsyncClient, "experiments", experiments)
    client = AsyncClient("127.0.0.1:1")
    assert (await find(client, "digits")).id == "d-2"
    with pytest.raises(Conflict, match="2 experiments have the name digits; name one by its id: d-2, d-1"):
        await find(client, "digits", only=True)
    assert (await find_with_job(client, None, "7", "hopyard logs")).id == "d-2"
    with pytest.raises(WrongUse, match="which job\\? hopyard logs digits JOB"):
        await find_with_job(client, None, "digits", "hopyard logs")
    del found[1]
    assert (await find(client, "digits", only=True)).id == "d-2"
