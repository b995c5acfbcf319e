"""Tests of how commands find their cluster and their experiment."""

import pytest

from hopyard.cli.connect import find, find_with_job, joined
from hopyard.cli.errors import WrongUse
from hopyard.client.async_client import AsyncClient
from hopyard.client.types import Experiment, ExperimentState, Job, JobState, Metric, Node, NodeState
from hopyard.errors import Conflict, NotFound

pytestmark = pytest.mark.quick


def node(state: NodeState) -> Node:
    return Node(id="local", address="127.0.0.1:1", state=state)


async def test_a_node_is_waited_for_until_it_is_up() -> None:
    answers = [[], [node(NodeState.LOST)], [node(NodeState.LOST), node(NodeState.UP)], []]

    async def nodes() -> list[Node]:
        return answers.pop(0)

    await joined(nodes, poll=0)
    assert len(answers) == 1


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
