"""Fixtures: clusters in the test's event loop, each with its own data directory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard_appstat.service import AppStatService
from hopyard_hpgen.service import HpgenService
from hopyard_nodeagent.agent import NodeAgent
from hopyard_nodeagent.settings import AgentSettings, SlotSettings
from hopyard_scheduler.service import SchedulerService

Cluster = Callable[[str], AbstractAsyncContextManager[AsyncClient]]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """A factory of clusters with one node of one slot; the same directory name opens the same cluster again."""

    @asynccontextmanager
    async def opened(name: str) -> AsyncIterator[AsyncClient]:
        folder = tmp_path / name
        appstat, hpgen = AppStatService(data=folder / "appstat"), HpgenService()
        scheduler = SchedulerService(appstat=await appstat.start(), hpgen=await hpgen.start())
        found = await scheduler.start()
        slots = (SlotSettings(id=f"{name}/0", cpus=1),)
        settings = AgentSettings(node=name, scheduler=found, data=folder / "agent", slots=slots)
        agent = NodeAgent(settings)
        await agent.start()
        try:
            async with AsyncClient(server=found) as client:
                yield client
        finally:
            await agent.stop()
            await scheduler.stop(1)
            await hpgen.stop(1)
            await appstat.stop(1)

    return opened
