"""A cluster whose scheduler often asks its nodes for their partitions, with agents that a test starts and stops."""

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
from tests.timing import HANG_SECONDS


class Cluster:
    """The services of a cluster, in the test's event loop.

    Args:
        folder: The data folder of all services.
        lease_seconds: A node without a message for so long is lost, and so are its runs. Agents send at least ten heartbeats in
            this time.
    """

    def __init__(self, folder: Path, lease_seconds: float = 20.0) -> None:
        self.folder = folder
        self.lease_seconds = lease_seconds
        self.appstat = AppStatService(data=folder / "appstat")
        self.hpgen = HpgenService()
        self.agents: dict[str, NodeAgent] = {}

    async def start(self) -> None:
        """Start all services except agents."""
        self.addresses = await self.appstat.start(), await self.hpgen.start()
        await self.start_scheduler()

    async def start_scheduler(self) -> None:
        """Start a scheduler, at the same address as an earlier one."""
        appstat, hpgen = self.addresses
        self.scheduler = SchedulerService(
            appstat=appstat,
            hpgen=hpgen,
            data=self.folder / "scheduler",
            lease_seconds=self.lease_seconds,
            heartbeat_seconds=min(DEFAULT_HEARTBEAT_SECONDS, self.lease_seconds / 10),
            data_seconds=0.2,
        )
        self.address = await self.scheduler.start()
        self.client = AsyncClient(self.address)

    async def stop_scheduler(self) -> None:
        """Stop the scheduler."""
        await self.client.close()
        await self.scheduler.stop(1)

    async def join(self, *nodes: str, data_quota: int | None = None) -> None:
        """Start agents with one slot each, and wait until their nodes are UP."""
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
        """Stop an agent."""
        await self.agents.pop(node).stop()

    async def until(self, name: str, holds: Callable[[dict[str, ReplicaState]], bool]) -> dict[str, ReplicaState]:
        """Wait until the replica states of a data set, by "partition@node", satisfy `holds`; return them."""
        states: dict[str, ReplicaState] = {}
        try:
            async with asyncio.timeout(HANG_SECONDS):
                while not holds(states := standing(await self.client.data_set(name))):  # noqa: ASYNC110 - no event to wait for
                    await asyncio.sleep(0.02)
        except TimeoutError as error:
            raise AssertionError(f"they stand {states}") from error
        return states

    async def stop(self) -> None:
        """Stop all services and agents."""
        for node in list(self.agents):
            await self.leave(node)
        await self.stop_scheduler()
        await self.hpgen.stop(1)
        await self.appstat.stop(1)


def standing(data: DataSet) -> dict[str, ReplicaState]:
    """Return the states of a data set's replicas by "partition@node"."""
    return {f"{one.name}@{replica.node}": replica.state for one in data.partitions for replica in one.replicas}


def partition(name: str, **paths: Path) -> DataPartition:
    """Return a partition with replicas at these paths, by node."""
    return DataPartition(name, replicas=tuple(DataReplica(node, str(path)) for node, path in paths.items()))
