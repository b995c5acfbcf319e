"""Tests of policies that exceed their time limit: others are not affected, and the experiment continues once they answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import Experiment, ExperimentState
from hopyard.errors import InvalidInput
from hopyard.policy.vocabulary import StreamId
from hopyard_engine.core.events import Event, NodeLost, PolicyFailed
from hopyard_scheduler.policy_process.policy import RemotePolicy
from hopyard_scheduler.policy_process.spawn import SpawnedPolicy
from hopyard_scheduler.runtime.journal import Journal
from tests.integration.replay.test_commands import Commands
from tests.integration.restartable import Restartable
from tests.integration.scheduler.conftest import experiment, let_go
from tests.timing import HANG_SECONDS, scaled

THINKS = """
policy: {{name: 'tests.integration.scheduler.policies:Thinks', how: {how}, where: '{where}'}}
resources: {{slots: 1}}
"""
CRASHES = "policy: 'tests.integration.scheduler.policies:Crashes'\nresources: {slots: 1}"
OTHER = "resources: {slots: 1}"
LEASE = scaled(3.0)
NEVER = 2 * HANG_SECONDS
"""A limit that no policy may reach: anything that waits for a policy would wait until the test ends."""


class Cluster(Restartable):
    """A cluster each of whose schedulers is started with a time limit for policies."""

    async def begin(self, policy_seconds: float, lease_seconds: float = LEASE) -> None:
        await self.start(lease_seconds=lease_seconds, heartbeat_seconds=LEASE / 10, policy_seconds=policy_seconds)

    async def events(self, name: str) -> list[Event]:
        assert self.scheduler is not None
        return [event async for event in Journal(self.scheduler._appstat_stub).read(StreamId(name))]

    async def failures(self, name: str) -> list[PolicyFailed]:
        return [event for event in await self.events(name) if isinstance(event, PolicyFailed)]

    def process_of(self, name: str) -> int | None:
        """Return the process id of an experiment's policy; None: no process runs."""
        host = self.live.hosts[StreamId(name)]
        assert isinstance(host, RemotePolicy)
        assert isinstance(host._source, SpawnedPolicy)
        return host._source.pid

    def be_patient(self) -> None:
        """Remove the time limit of the policies of all experiments."""
        for host in self.live.hosts.values():
            if isinstance(host, RemotePolicy):
                host._limits = replace(host._limits, answer=NEVER)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster.on(tmp_path, slots=3) as found:
        yield found


class Behaviour:
    """The files by which policies report that they hang, and by which the test lets them continue.

    Args:
        folder: The folder of the files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def policy(self, how: str) -> str:
        """Return the policy section of an experiment file."""
        return THINKS.format(how=how, where=self.folder)

    def hangs(self, *how: str) -> bool:
        """Return whether policies of all these kinds have begun to hang."""
        return all((self.folder / one).exists() for one in how)

    def set(self) -> None:
        """Let policies continue from now on."""
        (self.folder / "behaves").touch()

    def clear(self) -> None:
        """Make policies hang from now on."""
        (self.folder / "behaves").unlink()


@pytest.fixture
def behaves(tmp_path: Path) -> Behaviour:
    return Behaviour(tmp_path / "behaviour")


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while not holds():  # noqa: ASYNC110 - other threads and processes
            await asyncio.sleep(0.02)


async def paused(client: AsyncClient, name: str) -> Experiment:
    return await client.wait(name, HANG_SECONDS, until={ExperimentState.PAUSED})


async def hung(client: AsyncClient, name: str, how: str, behaves: Behaviour) -> Experiment:
    """Wait until an experiment is paused because its policy hangs; resume it if an earlier answer took too long on a busy host."""
    shown = await paused(client, name)
    while not behaves.hangs(how):
        await client.resume(name)
        shown = await paused(client, name)
    return shown


@pytest.mark.timeout(240)
async def test_others_train_on_while_policies_think(cluster: Cluster, tmp_path: Path, behaves: Behaviour) -> None:
    await cluster.begin(policy_seconds=NEVER, lease_seconds=20.0)
    async with AsyncClient(server=cluster.address, patience=HANG_SECONDS) as client:
        loops = await client.create(experiment(tmp_path / "loop", jobs=2, more=behaves.policy("loop")))
        waits = await client.create(experiment(tmp_path / "wait", jobs=2, more=behaves.policy("wait")))
        await until(lambda: behaves.hangs("loop", "wait"))
        core = cluster.live.core
        other = await client.create(experiment(tmp_path / "other", jobs=3, length=10, pace=0.01, more=OTHER))
        while not core.streams[StreamId(other.id)].state.ended:
            async with asyncio.timeout(HANG_SECONDS):
                assert len(await client.jobs(loops.id)) == 2
                assert (await client.get(waits.id)).state is ExperimentState.RUNNING
            await asyncio.sleep(0.05)
        assert core.awaits_answer(StreamId(loops.id))
        # So the other one trained from beginning to end while this one waited.
        assert core.awaits_answer(StreamId(waits.id))
        assert (await client.wait(other.id, HANG_SECONDS)).state is ExperimentState.COMPLETED
        assert [job.attempt for job in await client.jobs(other.id)] == [1, 1, 1]
        behaves.set()
        for name in (loops.id, waits.id):
            assert (await client.wait(name, HANG_SECONDS)).state is ExperimentState.COMPLETED
            assert await cluster.failures(name) == []


@pytest.mark.timeout(240)
async def test_policies_that_think_too_long_are_paused_and_go_on_when_they_behave(
    cluster: Cluster, tmp_path: Path, behaves: Behaviour, capfd: pytest.CaptureFixture[str]
) -> None:
    limit = scaled(2.0)
    await cluster.begin(policy_seconds=limit)
    async with AsyncClient(server=cluster.address, patience=HANG_SECONDS) as client:
        loops = await client.create(experiment(tmp_path / "loop", jobs=2, more=behaves.policy("loop")))
        waits = await client.create(experiment(tmp_path / "wait", jobs=2, more=behaves.policy("wait")))
        for name, how in ((loops.id, "loop"), (waits.id, "wait")):
            shown = await hung(client, name, how, behaves)
            policy = "policy tests.integration.scheduler.policies:Thinks"
            assert shown.reason.startswith(f"policy error: {policy} took longer than {limit:g} s on up-call "), how
            assert shown.reason.endswith(" IterationFinish")
            assert {failed.unheard for failed in await cluster.failures(name)} == {True}
            assert not any(isinstance(event, NodeLost) for event in await cluster.events(name))
        async with asyncio.timeout(HANG_SECONDS):
            while (await client.nodes())[0].silent_seconds > LEASE / 2:  # noqa: ASYNC110 - until the session is back
                await asyncio.sleep(0.02)

        cluster.be_patient()
        behaves.set()
        for name in (loops.id, waits.id):
            await client.resume(name)
        for name in (loops.id, waits.id):
            ended = await client.wait(name, HANG_SECONDS)
            assert (ended.state, ended.reason) == (ExperimentState.COMPLETED, "all jobs ended")
            assert [job.position for job in await client.jobs(name)] == [4, 4]
    commands = Commands(cluster.address, capfd)
    for name in (loops.id, waits.id):
        assert (await commands.replay(name)).equal


async def test_the_process_of_a_policy_that_hangs_is_ended(
    cluster: Cluster, tmp_path: Path, behaves: Behaviour
) -> None:
    await cluster.begin(policy_seconds=scaled(1.0))
    async with AsyncClient(server=cluster.address, patience=HANG_SECONDS) as client:
        loops = await client.create(experiment(tmp_path / "loop", jobs=1, more=behaves.policy("loop")))
        await hung(client, loops.id, "loop", behaves)
        assert cluster.process_of(loops.id) is None


@pytest.mark.timeout(240)
async def test_a_policy_that_crashes_pauses_its_experiment_and_no_other(cluster: Cluster, tmp_path: Path) -> None:
    await cluster.begin(policy_seconds=NEVER)
    async with AsyncClient(server=cluster.address, patience=HANG_SECONDS) as client:
        crashes = await client.create(experiment(tmp_path / "crash", jobs=1, more=CRASHES))
        other = await client.create(experiment(tmp_path / "other", jobs=2, length=10, pace=0.01, more=OTHER))
        reason = (await paused(client, crashes.id)).reason
        assert "policy tests.integration.scheduler.policies:Crashes: its process ended 3 times during up-call" in reason
        assert (await client.wait(other.id, HANG_SECONDS)).state is ExperimentState.COMPLETED


async def test_what_comes_while_a_policy_thinks_is_taken_afterwards(
    cluster: Cluster, tmp_path: Path, behaves: Behaviour
) -> None:
    await cluster.begin(policy_seconds=NEVER)
    async with AsyncClient(server=cluster.address, patience=HANG_SECONDS, timeout=HANG_SECONDS) as client:
        waits = await client.create(experiment(tmp_path / "wait", jobs=1, more=behaves.policy("wait")))
        await until(lambda: behaves.hangs("wait"))
        stopping = asyncio.create_task(client.stop(waits.id))
        await until(lambda: cluster.live._inboxes.waiting(StreamId(waits.id)) > 0)
        assert (await client.get(waits.id)).state is ExperimentState.RUNNING
        behaves.set()
        await stopping
        assert (await client.wait(waits.id, HANG_SECONDS)).state is ExperimentState.STOPPED
        assert await cluster.failures(waits.id) == []


async def test_a_policy_that_hangs_in_a_recovery_is_paused_and_the_others_come_up(
    cluster: Cluster, tmp_path: Path, behaves: Behaviour
) -> None:
    behaves.set()
    await cluster.begin(policy_seconds=NEVER)
    limit = scaled(1.0)
    async with AsyncClient(server=cluster.address, patience=HANG_SECONDS) as client:
        file = experiment(tmp_path / "hang", jobs=1, length=40, pace=0.02, more=behaves.policy("loop"), free=4)
        hangs = await client.create(file)
        other = await client.create(experiment(tmp_path / "other", jobs=1, length=60, pace=0.02, more=OTHER))
        async with asyncio.timeout(
            HANG_SECONDS
        ):  # The up-call at which the policy hangs is also written with the journal.
            while len(await client.statistics(hangs.id)) < 4:  # noqa: ASYNC110 - another process trains
                await asyncio.sleep(0.02)
        await cluster.halt()
        behaves.clear()
        await cluster.begin(policy_seconds=limit)
        shown = await paused(client, hangs.id)
        assert f"took longer than {limit:g} s on up-call " in shown.reason
        assert shown.reason.endswith(" IterationFinish, restored from the journal")
        assert (await client.wait(other.id, HANG_SECONDS)).state is ExperimentState.COMPLETED
        await client.resume(hangs.id)  # The policy is constructed again, hangs again, and the reason says so again.
        async with asyncio.timeout(HANG_SECONDS):
            while len(await cluster.failures(hangs.id)) < 2:  # noqa: ASYNC110 - no event to wait for
                await asyncio.sleep(0.02)
        assert (await paused(client, hangs.id)).reason == shown.reason
        cluster.be_patient()
        behaves.set()
        let_go(file)
        await client.resume(hangs.id)
        assert (await client.wait(hangs.id, HANG_SECONDS)).state is ExperimentState.COMPLETED


async def test_a_policy_that_takes_too_long_to_be_made_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    limit = scaled(0.5)
    await cluster.begin(policy_seconds=limit)
    more = "policy: tests.integration.scheduler.policies:Unmakeable"
    async with AsyncClient(server=cluster.address, patience=HANG_SECONDS) as client:
        with pytest.raises(InvalidInput, match=rf"policies:Unmakeable took longer than {limit:g} s to be made"):
            await client.create(experiment(tmp_path / "e", more=more))
