"""A scheduler that asks its nodes often what they hold, and agents that a test starts and stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from hopyard._net.rpc import Backoff
from hopyard.client import AsyncClient
from hopyard.client.datasets import DataPartition, DataReplica, DataSet, ReplicaState
from hopyard.client.types import NodeState
from hopyard_appstat.service import AppStatService
from hopyard_hpgen.service import HpgenService
from hopyard_nodeagent.agent import NodeAgent
from hopyard_nodeagent.settings import AgentSettings, SlotSettings
from hopyard_scheduler.service import DEFAULT_HEARTBEAT_SECONDS, SchedulerService
from tests.ports import free_port
from tests.timing import HANG_SECONDS


class Cluster:
    """The services, in this process's event loop.

    Args:
        folder: What they write.
        lease_seconds: A node that left is away after so long. Runs of one that was only held up for so long are lost too.
            Agents give ten signs of life in this time at least.
    """

    def __init__(self, folder: Path, lease_seconds: float = 20.0) -> None:
        self.folder = folder
        self.lease_seconds = lease_seconds
        self.appstat = AppStatService(data=folder / "appstat")
        self.hpgen = HpgenService()
        self.agents: dict[str, NodeAgent] = {}

    async def start(self) -> None:
        """Starts all but agents."""
        self.addresses = await self.appstat.start(), await self.hpgen.start()
        await self.start_scheduler()

    async def start_scheduler(self, port: int | None = None) -> None:
        """Starts a scheduler."""
        appstat, hpgen = self.addresses
        self.scheduler = SchedulerService(
            appstat=appstat,
            hpgen=hpgen,
            port=port or free_port(),
            lease_seconds=self.lease_seconds,
            heartbeat_seconds=min(DEFAULT_HEARTBEAT_SECONDS, self.lease_seconds / 10),
            data_seconds=0.2,
        )
        self.address = await self.scheduler.start()
        self.client = AsyncClient(self.address)

    async def stop_scheduler(self) -> int:
        """Stops it; answers its port."""
        await self.client.close()
        await self.scheduler.stop(1)
        return int(self.address.rpartition(":")[2])

    async def join(self, *nodes: str, data_quota: int | None = None) -> None:
        """Starts agents with one slot each, and waits until they are there."""
        for node in nodes:
            settings = AgentSettings(
                node=node,
                scheduler=self.address,
                data=self.folder / node,
                slots=(SlotSettings(id=f"{node}/0"),),
                backoff=Backoff(first=0.05, most=0.2),
                data_quota=data_quota,
            )
            agent = self.agents[node] = NodeAgent(settings)
            await agent.start()
        async with asyncio.timeout(HANG_SECONDS):
            while not set(nodes) <= {one.id for one in await self.client.nodes() if one.state is NodeState.UP}:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def leave(self, node: str) -> None:
        """Stops an agent."""
        await self.agents.pop(node).stop()

    async def until(self, name: str, holds: Callable[[dict[str, ReplicaState]], bool]) -> dict[str, ReplicaState]:
        """Waits until a data set's replicas stand so: states by "partition@node"."""
        states: dict[str, ReplicaState] = {}
        try:
            async with asyncio.timeout(HANG_SECONDS):
                while not holds(states := standing(await self.client.data_set(name))):  # noqa: ASYNC110 - nobody tells a client
                    await asyncio.sleep(0.02)
        except TimeoutError as error:
            raise AssertionError(f"they stand {states}") from error
        return states

    async def stop(self) -> None:
        """Stops all."""
        for node in list(self.agents):
            await self.leave(node)
        await self.stop_scheduler()
        await self.hpgen.stop(1)
        await self.appstat.stop(1)


def standing(data: DataSet) -> dict[str, ReplicaState]:
    """How replicas stand, by "partition@node"."""
    return {f"{one.name}@{replica.node}": replica.state for one in data.partitions for replica in one.replicas}


def partition(name: str, **paths: Path) -> DataPartition:
    """A partition at these paths, by node."""
    return DataPartition(name, replicas=tuple(DataReplica(node, str(path)) for node, path in paths.items()))
