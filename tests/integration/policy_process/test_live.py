"""Tests of policy processes in a real cluster."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import Experiment, ExperimentState
from hopyard.errors import InvalidInput, Unavailable
from hopyard.policy.vocabulary import StreamId
from hopyard_scheduler.policy_process import registry, replay_server
from hopyard_scheduler.policy_process.policy import Limits, RemotePolicy
from hopyard_scheduler.policy_process.spawn import SpawnedPolicy
from hopyard_tools.commands.events import tell
from hopyard_tools.commands.replay import replay
from tests.integration.policy_process.rig import serving
from tests.integration.restartable import Restartable
from tests.integration.scheduler.conftest import experiment
from tests.timing import HANG_SECONDS, scaled

REMOTE = "policy: {name: 'remote:far', evaluation_boundary: 2}\ngenerator: {name: random, seed: 4}"
MINE = '''
from hopyard_policies.bandit import BanditPolicy


class Mine(BanditPolicy):
    """Nobody else's."""
'''


def policy_of(cluster: Restartable, name: str) -> RemotePolicy:
    """Return the scheduler's object for an experiment's policy."""
    found = cluster.live.hosts[StreamId(name)]
    assert isinstance(found, RemotePolicy)
    return found


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Restartable]:
    async with Restartable.on(tmp_path) as found:
        yield found


async def ended(client: AsyncClient, name: str) -> Experiment:
    found = await client.wait(name, timeout=HANG_SECONDS)
    assert found.state is ExperimentState.COMPLETED, found.reason
    return found


async def dialled_in(cluster: Restartable) -> None:
    """Wait until a process offers the policy remote:far."""
    assert cluster.scheduler is not None
    async with asyncio.timeout(HANG_SECONDS):
        while not cluster.scheduler._registry.has_waiting("far"):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)


async def reported(client: AsyncClient, name: str, reports: int) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while len(await client.statistics(name)) < reports:  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.05)


@pytest.mark.timeout(240)
async def test_a_policy_that_dials_in_drives_experiments_and_their_replays(
    cluster: Restartable, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.start()
    async with AsyncClient(server=cluster.address) as client:
        with serving("bandit", "--name", "far", "--server", cluster.address):
            await dialled_in(cluster)
            with pytest.raises(InvalidInput, match="policy remote:far: policy bandit has no parameter boundary"):
                await client.create(experiment(tmp_path / "wrong", more="policy: {name: 'remote:far', boundary: 2}"))
            first, second = [
                await client.create(experiment(tmp_path / name, jobs=6, length=7, more=REMOTE)) for name in "ab"
            ]
            await ended(client, first.id)
            await ended(client, second.id)
        capfd.readouterr()
        # No process serves the policy any more, and a replay reports what it needs.
        monkeypatch.setattr(replay_server, "LIMITS", Limits(answer=HANG_SECONDS, absence=scaled(0.5)))
        with pytest.raises(Unavailable, match="hopyard policy serve module:Class --name far --server unix:"):
            await replay(first.id, None, cluster.address, None, False)
        monkeypatch.setattr(replay_server, "LIMITS", Limits(answer=HANG_SECONDS, absence=HANG_SECONDS))
        capfd.readouterr()
        replaying = asyncio.create_task(replay(first.id, None, cluster.address, None, False))
        said = ""
        async with asyncio.timeout(HANG_SECONDS):
            while not re.search(r"--server \S+\s", said):
                await asyncio.sleep(0.05)
                said += capfd.readouterr().err
        where = said.rpartition("--server ")[2].split()[0]
        with serving("bandit", "--name", "far", "--server", where):
            assert await replaying
    assert "every decision is the same" in capfd.readouterr().err


@pytest.mark.timeout(240)
async def test_a_command_is_started_in_the_code_and_started_again_when_it_is_killed(
    cluster: Restartable, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "REVIEW_ABSENCE_SECONDS", HANG_SECONDS)
    await cluster.start()
    serve = [sys.executable, "-m", "hopyard.cli.main", "policy", "serve", "mine:Mine"]
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "mine.py").write_text(MINE)
    async with AsyncClient(server=cluster.address, timeout=HANG_SECONDS) as client:
        file = experiment(
            tmp_path / "e",
            jobs=8,
            length=12,
            pace=0.05,
            more=f"policy: {{command: {serve}, evaluation_boundary: 2}}\ngenerator: {{name: random, seed: 4}}",
        )
        created = await client.create(file)
        await reported(client, created.id, 1)
        source = policy_of(cluster, created.id)._source
        assert isinstance(source, SpawnedPolicy)
        for reports in (4, 12):
            await reported(client, created.id, reports)
            assert source._process is not None
            os.kill(source._process[0].pid, signal.SIGKILL)
        await ended(client, created.id)
        assert await replay(created.id, None, cluster.address, None, False)
        capfd.readouterr()
        await tell(created.id, None, False, cluster.address, None, False)
        story = capfd.readouterr().out
        assert story.count("the process of the policy disconnected") == 2
        assert re.findall(r"a process of the policy connected(, and got \d+ up-calls again)?", story)[0] == ""
        assert len(re.findall(r"a process of the policy connected, and got \d+ up-calls again", story)) == 2
        # The started processes have ended.
        async with asyncio.timeout(HANG_SECONDS):
            while source._process is not None:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)


@pytest.mark.timeout(240)
async def test_a_dead_policy_pauses_its_own_experiment_and_says_what_to_do(
    cluster: Restartable, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.start()
    async with AsyncClient(server=cluster.address, patience=HANG_SECONDS) as client:
        with serving("bandit", "--name", "far", "--server", cluster.address) as process:
            await dialled_in(cluster)
            dies = await client.create(experiment(tmp_path / "a", jobs=3, length=10, pace=0.1, more=REMOTE))
            await reported(client, dies.id, 2)
            policy = policy_of(cluster, dies.id)
            patient, policy._limits = policy._limits, Limits(answer=HANG_SECONDS, absence=scaled(1.0))
            process.kill()
            other = await client.create(experiment(tmp_path / "b", jobs=3))
            await ended(client, other.id)
            paused = await client.wait(dies.id, HANG_SECONDS, until={ExperimentState.PAUSED})
        assert "no process serves remote:far" in paused.reason
        assert f"--name far --server {cluster.address}" in paused.reason
        assert f"then: hopyard resume {dies.id}" in paused.reason
        capfd.readouterr()
        await tell(dies.id, None, False, cluster.address, None, False)
        assert "no process serves remote:far" in capfd.readouterr().out
        monkeypatch.setattr(registry, "REVIEW_ABSENCE_SECONDS", scaled(0.5))
        with pytest.raises(
            InvalidInput, match=r"no process serves remote:far; start one, such as: hopyard policy serve"
        ):
            await client.create(experiment(tmp_path / "c", more=REMOTE))
        with serving("bandit", "--name", "far", "--server", cluster.address):
            await dialled_in(cluster)
            policy_of(cluster, dies.id)._limits = patient
            await client.resume(dies.id)
            await ended(client, dies.id)


@pytest.mark.timeout(240)
async def test_a_scheduler_that_is_started_anew_tells_all_again(cluster: Restartable, tmp_path: Path) -> None:
    await cluster.start()
    async with AsyncClient(server=cluster.address, patience=HANG_SECONDS) as client:
        with serving("bandit", "--name", "far", "--server", cluster.address):
            await dialled_in(cluster)
            created = await client.create(experiment(tmp_path / "a", jobs=6, length=12, pace=0.05, more=REMOTE))
            await reported(client, created.id, 6)
            assert cluster.scheduler is not None
            await cluster.scheduler.stop(1)
            await cluster.start()
            await ended(client, created.id)
