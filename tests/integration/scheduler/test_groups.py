"""Tests of experiments with the same `share` key: one policy and one share, but separate jobs, generators and ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import Experiment, ExperimentState, JobState, Slot
from hopyard.errors import Conflict, InvalidInput, NotFound
from hopyard_nodeagent.agent import NodeAgent
from hopyard_nodeagent.settings import AgentSettings, SlotSettings
from hopyard_scheduler.service import SchedulerService
from tests.integration.scheduler.conftest import experiment, let_go
from tests.integration.scheduler.test_recovery import Pieces, pieces
from tests.timing import HANG_SECONDS

__all__ = ["pieces"]


def grouped(folder: Path, *, more: str = "", **terms: float) -> Path:
    """Write the file of an experiment of group g."""
    return experiment(folder, more=f"share: g\n{more}", **terms)  # type: ignore[arg-type]


async def _curves(client: AsyncClient, found: Experiment) -> dict[str, list[int]]:
    return {
        job.id: [s.report.position for s in await client.statistics(found.id, job.id)]
        for job in await client.jobs(found.id)
    }


async def test_a_second_experiment_joins_and_each_ends_by_its_own_terms(client: AsyncClient, tmp_path: Path) -> None:
    file = grouped(tmp_path / "a", jobs=8, length=20, free=3)
    first = await client.create(file)
    second = await client.create(grouped(tmp_path / "b", jobs=2, length=5, more="weight: 3"))
    assert (first.group, second.group) == (first.id, first.id)
    async with asyncio.timeout(HANG_SECONDS):
        while not (waiting := await client.jobs(first.id, JobState.PENDING)):
            pass
    # So the first experiment cannot end before the second. A running job could complete before the pause takes effect.
    await client.pause_job(first, waiting[0].id)
    let_go(file)
    ended = await client.wait(second.id, timeout=HANG_SECONDS)
    assert (ended.state, ended.reason) == (ExperimentState.COMPLETED, "all jobs ended")
    assert (await client.get(first.id)).state is ExperimentState.RUNNING
    await client.resume_job(first, waiting[0].id)
    last = await client.wait(first.id, timeout=HANG_SECONDS)
    assert last.state is ExperimentState.COMPLETED
    ones, others = await _curves(client, first), await _curves(client, second)
    assert sorted(ones.values()) == [list(range(1, 21))] * 8
    assert sorted(others.values()) == [list(range(1, 6))] * 2
    assert not set(ones) & set(others)
    with pytest.raises(NotFound, match=f"{second.id} has no job"):
        await client.job(second.id, next(iter(ones)))


async def test_a_slot_names_the_experiment_whose_job_runs_on_it(client: AsyncClient, tmp_path: Path) -> None:
    first = await client.create(grouped(tmp_path / "a", jobs=1, length=5000, pace=0.05))
    second = await client.create(grouped(tmp_path / "b", jobs=1, length=5000, pace=0.05))
    busy: list[Slot] = []
    async with asyncio.timeout(HANG_SECONDS):
        while len(busy) < 2:
            busy = [slot for node in await client.nodes() for slot in node.slots if slot.job]
    assert {slot.experiment for slot in busy} == {first.id, second.id}
    for slot in busy:
        assert slot.id in (await client.job(slot.experiment or "", slot.job or "")).slots
    for created in (first, second):
        await client.stop(created.id)


async def test_who_does_not_agree_may_not_join(client: AsyncClient, tmp_path: Path) -> None:
    first = await client.create(grouped(tmp_path / "a", jobs=2, length=5000, pace=0.05))
    with pytest.raises(InvalidInput, match=r"share: .*policy: found \{'barrier': True\}, the group has \{\}.*another"):
        await client.create(grouped(tmp_path / "b", more="policy: {name: default, barrier: true}"))
    await client.stop(first.id)
    await client.wait(first.id, timeout=HANG_SECONDS)
    alone = await client.create(grouped(tmp_path / "c", more="policy: {name: default, barrier: true}"))
    assert alone.group == alone.id  # A group whose experiments have ended exists no longer.
    await client.wait(alone.id, timeout=HANG_SECONDS)


async def test_acting_on_one_leaves_the_other_alone(client: AsyncClient, tmp_path: Path) -> None:
    files = [grouped(tmp_path / name, jobs=2, length=30, free=5) for name in ("a", "b")]
    first, second = [await client.create(file) for file in files]
    await client.pause(first.id)
    await client.wait(first.id, until=(ExperimentState.PAUSED,), timeout=HANG_SECONDS)
    for file in files:
        let_go(file)
    assert (await client.wait(second.id, timeout=HANG_SECONDS)).state is ExperimentState.COMPLETED
    assert not await client.jobs(first.id, JobState.RUNNING)
    await client.extend(second.id, jobs=1)
    await client.resume(first.id)
    for name, jobs in ((first.id, 2), (second.id, 3)):
        assert (await client.wait(name, timeout=HANG_SECONDS)).state is ExperimentState.COMPLETED
        assert [job.position for job in await client.jobs(name)] == [30] * jobs
    with pytest.raises(Conflict, match="is COMPLETED"):
        await client.pause(second.id)


async def test_a_group_goes_on_after_its_scheduler_and_the_founder_are_gone(pieces: Pieces, tmp_path: Path) -> None:
    scheduler: SchedulerService = await pieces.scheduler()
    slots = (SlotSettings(id="n/0", cpus=1), SlotSettings(id="n/1", cpus=1))
    agent = NodeAgent(AgentSettings(node="n", scheduler=scheduler.address, data=tmp_path / "agent", slots=slots))
    await agent.start()
    try:
        async with AsyncClient(server=scheduler.address, patience=HANG_SECONDS) as client:
            first = await client.create(grouped(tmp_path / "a", jobs=1, length=5, pace=0.02))
            file = grouped(tmp_path / "b", jobs=3, length=100, free=20)
            second = await client.create(file)
            await client.wait(first.id, timeout=HANG_SECONDS)
            await scheduler.stop(0)
            await pieces.scheduler()
            assert (await client.get(first.id)).state is ExperimentState.COMPLETED
            third = await client.create(grouped(tmp_path / "c", jobs=1, length=5))
            assert third.group == first.id
            let_go(file)
            for found, jobs, length in ((second, 3, 100), (third, 1, 5)):
                ended = await client.wait(found.id, timeout=HANG_SECONDS)
                assert (ended.state, ended.reason) == (ExperimentState.COMPLETED, "all jobs ended")
                assert list((await _curves(client, found)).values()) == [list(range(1, length + 1))] * jobs
    finally:
        await agent.stop()
