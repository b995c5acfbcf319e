"""Tests of models that hop directly between agents: evaluation in parts, one read of the data per process, a lost node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import Experiment, JobReport, JobState
from hopyard_appstat.service import AppStatService
from hopyard_hpgen.service import HpgenService
from hopyard_nodeagent.agent import NodeAgent
from hopyard_nodeagent.settings import AgentSettings, SlotSettings
from hopyard_scheduler.service import DEFAULT_HEARTBEAT_SECONDS, SchedulerService
from hopyard_tools.commands.replay import replay
from tests.integration.scheduler.hop_cluster import PROGRAM
from tests.timing import HANG_SECONDS, scaled

NODES = ("a", "b")


@dataclass
class Nodes:
    """A cluster of two nodes with a slot each."""

    scheduler: str
    agents: dict[str, NodeAgent]
    data: Path

    async def start(self, node: str) -> None:
        settings = AgentSettings(
            node=node,
            scheduler=self.scheduler,
            data=self.data / node,
            slots=(SlotSettings(id=f"{node}/0", cpus=1),),
        )
        self.agents[node] = NodeAgent(settings)
        await self.agents[node].start()

    async def stop(self, node: str) -> None:
        await self.agents.pop(node).stop()


@pytest.fixture
async def nodes(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Nodes]:
    appstat, hpgen = AppStatService(data=tmp_path / "appstat"), HpgenService()
    lease = getattr(request, "param", 20.0)
    scheduler = SchedulerService(
        appstat=await appstat.start(),
        hpgen=await hpgen.start(),
        lease_seconds=lease,
        heartbeat_seconds=min(DEFAULT_HEARTBEAT_SECONDS, lease / 10),
    )
    made = Nodes(await scheduler.start(), {}, tmp_path)
    try:
        for node in NODES:
            await made.start(node)
        yield made
    finally:
        for node in list(made.agents):
            await made.stop(node)
        await scheduler.stop(1)
        await hpgen.stop(1)
        await appstat.stop(1)


@pytest.fixture
async def client(nodes: Nodes) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server=nodes.scheduler) as found:
        yield found


async def started(client: AsyncClient, folder: Path, *, jobs: int, units: int, pace: float = 0.0) -> Experiment:
    """Create an experiment with two evaluation partitions of 30 and 10 examples, whose means are 1 and 3."""
    code, paths = folder / "code", dict[str, dict[str, str]]()
    code.mkdir()
    (code / "train.py").write_text(PROGRAM)
    for number, (node, examples) in enumerate(zip(NODES, (30, 10), strict=True)):
        for split in ("train", "evaluate"):
            file = folder / f"{split}-{node}.npy"
            np.save(file, np.full(examples, 1.0 + 2 * number))
            paths.setdefault(split, {})[node] = str(file)
    spec: dict[str, Any] = {
        "name": "hopping",
        "trainer": "train.py:TRAINER",
        "metric": {"name": "score", "mode": "max"},
        "space": {"rate": {"uniform": [0.1, 0.9]}, "pace": pace},
        "policy": {"name": "tests.integration.scheduler.hop_cluster:Hopping", **paths},
        "stop": {"jobs": jobs, "max_iterations": units},
        "snapshot": {"every": 1, "keep_best": 0},
        "unit": "units",
    }
    return await client.create(spec, code)


async def test_models_hop_directly_and_are_evaluated_by_parts(
    nodes: Nodes, client: AsyncClient, tmp_path: Path
) -> None:
    created = await started(client, tmp_path, jobs=3, units=5)
    seen: list[tuple[str, int, float]] = []
    async for change in client.watch(created):
        if isinstance(change, JobReport) and not change.report.part and "score" in change.report.metrics:
            seen.append((change.job, change.report.position, change.report.metrics["score"]))
    found = await client.get(created)
    jobs = await client.jobs(created)
    assert [(job.state, job.position) for job in jobs] == [(JobState.COMPLETED, 5)] * 3

    # Parts are weighted by their examples, each once: (30 x 1 + 10 x 3) / 40, at the end of each epoch.
    assert sorted({(job, position, score) for job, position, score in seen}) == [
        (job.id, position, 1.5) for job in jobs for position in (2, 4)
    ]
    for job in jobs:
        assert [(p.position, p.value) for p in await client.curve(created, job.id)] == [(2, 1.5), (4, 1.5)]
        assert (job.best_value, job.best_position, job.last_value) == (1.5, 2, 1.5)
    assert found.best_value == 1.5

    # Each model changed nodes within each epoch, directly between agents; the store received only the results.
    size = jobs[0].snapshots[0].size_bytes
    assert [(len(job.snapshots), job.snapshots[0].stored) for job in jobs] == [(1, True)] * 3
    assert found.hops.direct >= 3 * 4
    assert found.hops.direct_bytes == found.hops.direct * size
    assert (found.hops.fetched, found.hops.stored, found.hops.stored_bytes) == (0, 3, 3 * size)

    # Each process read its two partitions once, whichever job came first.
    logs = "".join([chunk.data.decode() for job in jobs async for chunk in client.logs(created, job.id)])
    assert sorted(line for line in logs.splitlines() if line.startswith("reads ")) == [
        f"reads {split}-{node}.npy" for split in ("evaluate", "train") for node in NODES
    ]
    assert await replay(created.id, None, nodes.scheduler, None, False)


@pytest.mark.parametrize("nodes", [pytest.param(scaled(2.0), id="short lease")], indirect=True)
async def test_a_node_that_dies_costs_each_model_its_last_unit_at_most(
    nodes: Nodes, client: AsyncClient, tmp_path: Path
) -> None:
    created = await started(client, tmp_path, jobs=2, units=5, pace=0.3)
    while min((job.position for job in await client.jobs(created)), default=0) < 2:  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.05)
    before = {job.id: job.position for job in await client.jobs(created)}
    await nodes.stop("b")
    async with asyncio.timeout(HANG_SECONDS):
        while any(node.id == "b" and node.state.value == "UP" for node in await client.nodes()):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    for job in await client.jobs(created):
        assert job.position >= before[job.id] - 1
    (tmp_path / "b").rename(tmp_path / "lost")
    await nodes.start("b")
    ended = await client.wait(created.id, timeout=HANG_SECONDS)
    assert [(job.state, job.position) for job in await client.jobs(created)] == [(JobState.COMPLETED, 5)] * 2
    assert ended.hops.fetched == 0
