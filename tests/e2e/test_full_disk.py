"""Tests of a full disk: the reason is reported, nothing is damaged, and with free space everything continues by itself."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import ExperimentState, JobState
from hopyard_engine.core.events import Ended, RunMessage
from tests.e2e.failures import alone, curve, experiment
from tests.e2e.harness import cluster
from tests.e2e.units import journal
from tests.small_disk import small_disk
from tests.timing import HANG_SECONDS

PATIENCE = HANG_SECONDS
LENGTH, LATE = 100, 60


@contextmanager
def filled(folder: Path) -> Iterator[Callable[[], None]]:
    """Context manager that fills the folder's disk; yields a function that fills space that was freed since."""
    file = folder / "filler"

    def fill() -> None:
        with file.open("ab", buffering=0) as filler:
            for size in (1 << 20, 4096, 1):
                try:
                    while True:
                        filler.write(bytes(size))
                except OSError:
                    continue

    fill()
    try:
        yield fill
    finally:
        file.unlink()


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition is true."""
    async with asyncio.timeout(PATIENCE):
        while not await true():  # noqa: ASYNC110 (no event to wait for)
            await asyncio.sleep(0.05)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An experiment whose job saves 40 kB after each iteration, and ends only once the file `enough` beside it exists."""
    enough = str(tmp_path / "walk" / "enough")
    space = {"pace": 0.1, "late": LATE, "enough": enough, "bytes": 40_000}
    return experiment(tmp_path / "walk", length=LENGTH, space=space)


async def goes_on(client: AsyncClient, name: str, file: Path) -> None:
    """Let the experiment finish, and check that its result is the same as without a full disk."""
    (file.parent / "enough").touch()
    ended = await client.wait(name, timeout=PATIENCE)
    assert ended.state is ExperimentState.COMPLETED, ended.reason
    (job,) = await client.jobs(name)
    assert (job.state, job.position, job.failures) == (JobState.COMPLETED, LENGTH, 0)
    assert curve(await client.statistics(name, "1")) == alone(file.parent, job.hyperparameters, LENGTH)
    assert job.snapshots[-1].stored


def whole(folder: Path) -> None:
    """Check that each file named by a hash has that hash; other processes may delete files meanwhile."""
    for where, _, names in os.walk(folder):
        for name in names:
            if len(name) == 64:
                with suppress(FileNotFoundError):
                    assert hashlib.sha256((Path(where) / name).read_bytes()).hexdigest() == name


def without_traceback(data: Path) -> None:
    for log in (data / "logs").glob("*.log"):
        assert "Traceback" not in log.read_text(), log


async def reached(client: AsyncClient, name: str, position: int) -> None:
    async def there() -> bool:
        jobs = await client.jobs(name)
        return bool(jobs) and jobs[0].position >= position

    await until(there)


async def test_the_agent_s_disk(data: Path, file: Path) -> None:
    with small_disk(data / "a", 8):
        async with cluster(data, {"a": 1}) as (processes, client):
            name = (await client.create(file)).id
            await reached(client, name, 3)

            with filled(data / "a") as fill:

                async def lost_twice() -> bool:
                    await asyncio.to_thread(fill)  # Each new snapshot causes an older one to be deleted.
                    return (await client.job(name, "1")).attempt >= 3

                await until(lost_twice)
            events = await journal(processes.scheduler, name)
            said = (event.body for event in events if isinstance(event, RunMessage))
            reasons = {str(body.cause) for body in said if isinstance(body, Ended)}
            assert any("no space left" in reason.lower() for reason in reasons), reasons
            await goes_on(client, name, file)
            await asyncio.to_thread(whole, data)
        await asyncio.to_thread(without_traceback, data)


async def test_the_snapshot_store_s_disk(data: Path, file: Path) -> None:
    with small_disk(data / "store", 2):
        async with cluster(data, {"a": 1}) as (_, client):
            name = (await client.create(file)).id
            await reached(client, name, 3)
            log = data / "logs" / "agent-a.log"

            with filled(data / "store") as fill:

                async def given_up() -> bool:
                    await asyncio.to_thread(
                        fill
                    )  # Each new snapshot causes an older one to be deleted, which leaves room for the next.
                    return "is not stored: " in await asyncio.to_thread(log.read_text)

                await until(given_up)
                assert "cannot be stored: No space left on device; make room" in await asyncio.to_thread(log.read_text)
                # Training continues: its snapshots are on another disk.
                await reached(client, name, min((await client.job(name, "1")).position + 2, LENGTH))
            await goes_on(client, name, file)
            assert (await client.job(name, "1")).attempt == 1
            await asyncio.to_thread(whole, data)
        await asyncio.to_thread(without_traceback, data)


@pytest.mark.nightly
async def test_one_disk_for_everything(data: Path, file: Path) -> None:
    with small_disk(data, 24):
        async with AsyncClient.local(data) as client:
            name = (await client.create(file)).id
            await reached(client, name, 3)
            assert (await client.cluster()).trouble == ""

            with filled(data) as fill:

                async def told() -> bool:
                    # The space of a deleted snapshot would let the journal grow for long.
                    await asyncio.to_thread(fill)
                    return "no space left on its disk" in (await client.cluster()).trouble

                await until(told)
                assert "the journal cannot be written: " in (await client.cluster()).trouble
                assert (await client.get(name)).state is ExperimentState.RUNNING, "questions are answered all the same"
            await goes_on(client, name, file)
            assert (await client.cluster()).trouble == ""
            await asyncio.to_thread(whole, data)
        await asyncio.to_thread(without_traceback, data)


@pytest.mark.parametrize("room", [0, 40960])
async def test_no_room_from_the_beginning(data: Path, file: Path, room: int) -> None:
    with small_disk(data, 1), filled(data):
        os.truncate(data / "filler", max(0, (data / "filler").stat().st_size - room))
        for arguments in (["run", str(file)], ["up"]):
            run = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "hopyard.cli.main", *arguments, "--data", str(data)),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            out, said = await run.communicate()
            assert (run.returncode, out) == (1, b"")
            assert b"no space left on" in said.lower(), said.decode()
            assert b"Traceback" not in said
