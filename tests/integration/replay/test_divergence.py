"""Tests of a scheduler that restarts with changed policy code: it pauses the experiment and shows the difference until resumed."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hopyard._common import plugins
from hopyard._common.plugins import POLICIES
from hopyard.client import AsyncClient
from hopyard.client.types import Experiment, ExperimentState
from tests.integration.replay.test_commands import POLICY, Commands
from tests.integration.restartable import Restartable
from tests.integration.scheduler.conftest import experiment
from tests.timing import HANG_SECONDS

MODULE = """
from tests.integration.replay.policies import Arrival

class Changing(Arrival):
    margin = {margin}
"""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Restartable]:
    async with Restartable.on(tmp_path) as found:
        await found.start()
        yield found


async def paused(client: AsyncClient, name: str) -> Experiment:
    return await client.wait(name, HANG_SECONDS, until={ExperimentState.PAUSED})


@pytest.mark.parametrize("where", ["inline", "in_a_process"])
async def test_a_changed_policy_pauses_its_experiment_once_and_can_go_on(
    cluster: Restartable, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    module = tmp_path / "modules" / f"{where}.py"
    module.parent.mkdir()
    module.write_text(MODULE.format(margin=0.0))
    monkeypatch.syspath_prepend(module.parent)
    if where == "inline":
        monkeypatch.setitem(plugins.BUILT_IN, POLICIES, where)
    policy = f"policy: '{where}:Changing'"
    async with AsyncClient(server=cluster.address, patience=HANG_SECONDS) as client:
        created = await client.create(experiment(tmp_path / "e", jobs=4, length=30, pace=0.05, more=policy, free=4))
        async for _ in client.watch(created.id):
            if len(await client.statistics(created.id)) > 6:
                break
        await cluster.halt()
        # With this margin even the first job at a position is terminated.
        module.write_text(MODULE.format(margin=-1.0))
        sys.modules.pop(where, None)
        await cluster.start()
        shown = await paused(client, created.id)
        assert shown.reason.startswith("policy error: it decides differently than recorded: event ")
        assert "now it is TERMINATE" in shown.reason
        listed = await client.experiments()
        assert [one.reason for one in listed] == [shown.reason]

        await cluster.halt()
        await cluster.start()
        assert (await client.get(created.id)).reason == shown.reason
        await client.resume(created.id)
        assert (await client.get(created.id)).state is not ExperimentState.PAUSED
        await cluster.halt()
        await cluster.start()
        ended = await client.wait(created.id, HANG_SECONDS)
        assert (ended.state, ended.reason) == (ExperimentState.COMPLETED, "all jobs ended")
        commands = Commands(cluster.address, capfd)
        replayed = await commands.replay(created.id, as_json=True)
        assert not replayed.equal
        assert replayed.document["first_difference"]["text"] in shown.reason
        told = await commands.events(created.id)
        assert told.out.count("the scheduler restarted and found that the policy decides differently now") == 1
        for job in await client.jobs(created.id):
            positions = [s.report.position for s in await client.statistics(created.id, job.id)]
            assert positions == list(range(1, len(positions) + 1))


async def test_an_unchanged_policy_is_not_paused_by_a_restart(
    cluster: Restartable, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with AsyncClient(server=cluster.address, patience=HANG_SECONDS) as client:
        created = await client.create(experiment(tmp_path / "e", jobs=4, length=30, pace=0.02, more=POLICY))
        for seen in (3, 8):
            async for _ in client.watch(created.id):
                if len(await client.statistics(created.id)) > seen:
                    break
            await cluster.halt()
            await cluster.start()
        ended = await client.wait(created.id, HANG_SECONDS)
        assert (ended.state, ended.reason) == (ExperimentState.COMPLETED, "all jobs ended")
        replayed = await Commands(cluster.address, capfd).replay(created.id, as_json=True)
        assert replayed.document["decisions_equal"]
