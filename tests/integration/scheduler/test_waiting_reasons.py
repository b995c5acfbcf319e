"""Tests of the reasons why jobs and experiments wait, as clients see them in lists and in watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import Change, Experiment, ExperimentState, Job
from hopyard.policy.vocabulary.reasons import ReasonCode
from hopyard_engine.core.cluster import turns
from hopyard_nodeagent.agent import NodeAgent
from hopyard_nodeagent.settings import AgentSettings, SlotSettings
from tests.integration.scheduler.conftest import experiment
from tests.integration.scheduler.test_recovery import Pieces, pieces
from tests.timing import HANG_SECONDS

__all__ = ["pieces"]


async def seen(changes: AsyncIterator[Change], wanted: Callable[[Change], bool]) -> None:
    """Wait until a watch yields a change that satisfies `wanted`."""
    last: Change | None = None
    async with asyncio.timeout(HANG_SECONDS):
        async for change in changes:
            if wanted(change):
                return
            last = change
    raise AssertionError(f"the watch ended before that, with {last}")


def says(job: str, reason: str) -> Callable[[Change], bool]:
    """Return a condition: the change is of this job and its reason begins with `reason`."""
    return lambda change: isinstance(change, Job) and change.id == job and change.reason.startswith(reason)


async def reasons(client: AsyncClient, found: Experiment, *jobs: str) -> dict[str, str]:
    """Return the reasons why these jobs wait."""
    return {job.id: job.reason for job in await client.jobs(found) if job.id in jobs}


async def until(ask: Callable[[], Awaitable[object]], wanted: object) -> None:
    """Call `ask` until it returns `wanted`. Between two reasons a job may wait for its policy for a moment."""
    answer: object = None
    try:
        async with asyncio.timeout(HANG_SECONDS):
            while (answer := await ask()) != wanted:  # noqa: ASYNC110 - no event to wait for
                await asyncio.sleep(0.02)
    except TimeoutError as error:
        raise AssertionError(f"it is {answer!r}, not {wanted!r}") from error


async def test_reasons_follow_the_cluster_without_the_jobs_doing(
    pieces: Pieces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        turns, "TURN_SECONDS", 0.05
    )  # The turn of the first experiment is over when the second one comes.
    scheduler = await pieces.scheduler()
    slot = (SlotSettings(id="n/0", cpus=1),)
    agent = NodeAgent(AgentSettings(node="n", scheduler=scheduler.address, data=tmp_path / "agent", slots=slot))
    try:
        async with AsyncClient(server=scheduler.address) as client:
            found = await client.create(experiment(tmp_path / "e", jobs=3, length=2000, pace=0.1))
            none = "the cluster has no slot (no agent is connected)"
            assert (await client.get(found.id)).reason == none
            assert [one.reason for one in await client.experiments()] == [none]
            async with aclosing(client.watch(found.id)) as changes:
                await seen(changes, lambda change: isinstance(change, Experiment) and change.reason == none)
                await agent.start()
                busy = "waits for a slot: 1 of 1 in its share are busy"
                await seen(changes, says("2", busy))
                await until(lambda: reasons(client, found, "2"), {"2": busy})
                # The state of jobs 2 and 3 does not change when another experiment is created; only the reason why they wait does.
                other = await client.create(experiment(tmp_path / "o", jobs=2, length=2000, pace=0.1, more="weight: 9"))
                starved = f"waits for a slot: its share is 0 of 1: weight 1 against {other.id} (weight 9: 1)"
                await seen(changes, says("3", starved))

                async def leaves() -> bool:
                    return (await client.get(found)).reason.startswith("its share fell to 0 of 1: it must leave 1")

                await until(leaves, True)
                await client.stop(other.id)
                await seen(changes, says("3", busy))
                await until(lambda: reasons(client, found, "2", "3"), {"2": busy, "3": busy})
                await client.pause(found.id)
                paused = "waits: the experiment is paused (paused by a person)"
                await client.wait(found.id, until=[ExperimentState.PAUSED], timeout=HANG_SECONDS)
                await seen(changes, says("2", paused))
                await until(lambda: reasons(client, found, "1", "2", "3"), dict.fromkeys("123", paused))
            await client.stop(found.id)
            ended = await client.wait(found.id, timeout=HANG_SECONDS)
            assert (ended.state, ended.reason) == (ExperimentState.STOPPED, "stopped by a person")
            left = await client.jobs(found.id)
            assert {job.reason_code for job in left} <= {ReasonCode.STOPPED_WITH_EXPERIMENT, ReasonCode.NOT_STARTED}
            assert all(job.reason.endswith("(stopped by a person)") for job in left)
    finally:
        await agent.stop()
