"""Tests of generators that exit, crash, loop, or take memory or processes: only their experiment is paused, and it can be resumed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import ExperimentState
from hopyard.errors import InvalidInput
from tests.integration.restartable import Restartable
from tests.integration.scheduler.conftest import experiment
from tests.timing import HANG_SECONDS, scaled

NAME = "tests.integration.scheduler.hostile_generators:Hostile"
LIMIT = scaled(2.0)
MEMORY = 400 << 20


@pytest.fixture
async def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Restartable]:
    """A cluster with the limit that the test is about, and without the other one, which may be exceeded first on a busy host."""
    how = request.node.callspec.params["how"] if hasattr(request.node, "callspec") else ""
    seconds = LIMIT if how == "loop" else 2 * HANG_SECONDS
    memory = MEMORY if how == "memory" else 0
    async with Restartable.on(tmp_path, slots=2, generator_seconds=seconds, generator_memory=memory) as found:
        await found.start(lease_seconds=scaled(3.0), heartbeat_seconds=scaled(0.3))
        yield found


@pytest.fixture
def where(tmp_path: Path) -> Path:
    (tmp_path / "where").mkdir()
    return tmp_path / "where"


def generator(how: str, where: Path) -> str:
    return f"generator: {{name: '{NAME}', how: {how}, where: '{where}'}}\nresources: {{slots: 1}}"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("how", "told", "starts"),
    [
        ("exit", "its process ended with exit code 0 in create(", 3),
        ("crash", "its process was killed by signal 11 in create(", 3),
        ("memory", "out of memory: it used", 3),
        ("forks", "it has started more than 255 processes", 3),
        ("loop", f"took longer than {LIMIT:g} s", 1),
        ("raises", "raised RuntimeError: out of ideas", 1),
        ("huge", "bytes, at most 1000000 are allowed", 1),
        ("alien", "is not JSON", 1),
        ("interrupt", "raised KeyboardInterrupt: ", 1),
        ("unprintable", "raised Unprintable: without a message", 1),
        ("child", "its process ended with exit code 7 in create(", 3),
        ("garbage", "has no valid answer: ", 1),
    ],
)
async def test_what_a_generator_does_pauses_its_experiment_and_no_other(
    cluster: Restartable, tmp_path: Path, where: Path, how: str, told: str, starts: int
) -> None:
    async with AsyncClient(server=cluster.address, patience=HANG_SECONDS) as client:
        other = await client.create(
            experiment(tmp_path / "other", jobs=1, length=30, pace=0.02, more="resources: {slots: 1}")
        )
        hostile = await client.create(experiment(tmp_path / "hostile", jobs=3, more=generator(how, where)))
        shown = await client.wait(hostile.id, HANG_SECONDS, until={ExperimentState.PAUSED})
        assert shown.reason.startswith(f"the generator failed: experiment {hostile.id}: ")
        assert told in shown.reason
        assert shown.reason.endswith(f"; after a remedy continue with hopyard resume {hostile.id}")
        assert len(_starts(where)) == starts
        assert (await client.wait(other.id, HANG_SECONDS)).state is ExperimentState.COMPLETED
        assert {job.state.name for job in await client.jobs(hostile.id)} <= {"CREATING", "COMPLETED", "SUSPENDED"}
        (where / "behaves").touch()
        await client.resume(hostile.id)
        assert (await client.wait(hostile.id, HANG_SECONDS)).state is ExperimentState.COMPLETED
        assert len({str(job.hyperparameters) for job in await client.jobs(hostile.id)}) == 3
    await _all_ended(where)


async def test_a_generator_that_is_killed_is_restarted_and_proposes_the_same(
    cluster: Restartable, tmp_path: Path, where: Path
) -> None:
    (where / "behaves").touch()
    async with AsyncClient(server=cluster.address, patience=HANG_SECONDS) as client:
        found = []
        for kills in (True, False):
            file = experiment(tmp_path / f"e{kills}", jobs=4, length=5, pace=0.02, more=generator("exit", where))
            made = await client.create(file)
            while kills and len(await client.jobs(made.id)) < 2:  # noqa: ASYNC110 - another process trains
                await asyncio.sleep(0.02)
            if kills:
                for process in _processes(where):
                    process.kill()
            assert (await client.wait(made.id, HANG_SECONDS)).state is ExperimentState.COMPLETED
            found.append([job.hyperparameters for job in await client.jobs(made.id)])
    assert found[0] == found[1]
    assert len(_starts(where)) == 3


async def test_a_failed_generator_is_asked_again_by_another_scheduler_only_after_a_resume(
    cluster: Restartable, tmp_path: Path, where: Path
) -> None:
    async with AsyncClient(server=cluster.address, patience=HANG_SECONDS) as client:
        made = await client.create(experiment(tmp_path / "e", jobs=3, more=generator("raises", where)))
        await client.wait(made.id, HANG_SECONDS, until={ExperimentState.PAUSED})
        await cluster.halt()
        await cluster.start(lease_seconds=scaled(3.0), heartbeat_seconds=scaled(0.3))
        assert (await client.get(made.id)).state is ExperimentState.PAUSED
        assert len(_starts(where)) == 1
        (where / "behaves").touch()
        await client.resume(made.id)
        assert (await client.wait(made.id, HANG_SECONDS)).state is ExperimentState.COMPLETED


async def test_one_that_ends_its_process_when_it_is_made_is_refused(
    cluster: Restartable, tmp_path: Path, where: Path
) -> None:
    more = "generator: 'tests.integration.scheduler.hostile_generators:Ends'\nresources: {slots: 1}"
    async with AsyncClient(server=cluster.address, patience=HANG_SECONDS) as client:
        with pytest.raises(InvalidInput, match=r"hostile_generators:Ends: .*its process ended with exit code 3"):
            await client.create(experiment(tmp_path / "e", more=more))


def _starts(where: Path) -> list[int]:
    """Return the ids of the processes that have created a generator of this test."""
    return [int(file.stem) for file in where.glob("*.pid")]


def _processes(where: Path) -> list[psutil.Process]:
    """Return the processes that have created a generator of this test and still exist."""
    found = []
    for pid in _starts(where):
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if "hopyard_hpgen.process" in process.cmdline():
                found.append(process)
    return found


async def _all_ended(where: Path) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while _processes(where):  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.05)
