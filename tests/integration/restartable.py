"""A cluster in the test's event loop whose scheduler can be stopped and started again on the same data."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from hopyard_appstat.service import AppStatService
from hopyard_hpgen.service import HpgenService
from hopyard_nodeagent.agent import NodeAgent
from hopyard_nodeagent.settings import AgentSettings, SlotSettings
from hopyard_scheduler.runtime.runtime import Runtime
from hopyard_scheduler.service import SchedulerService


class Restartable:
    """A cluster of one node, `n`, whose agent starts with the first scheduler.

    Args:
        data: The data folder.
        slots: The number of slots of the node.
        generator_seconds: The time limit of a generator's answer.
        generator_memory: The memory limit in bytes of a process with a generator; 0: none.
    """

    def __init__(self, data: Path, slots: int = 2, generator_seconds: float = 20.0, generator_memory: int = 0) -> None:
        self.appstat = AppStatService(data=data / "appstat")
        self.hpgen = HpgenService(seconds=generator_seconds, generator_memory=generator_memory)
        self.scheduler: SchedulerService | None = None
        self.agent: NodeAgent | None = None
        self.address = ""
        self._data = data
        self._slots = tuple(SlotSettings(id=f"n/{number}", cpus=1) for number in range(slots))

    @classmethod
    @asynccontextmanager
    async def on(
        cls, data: Path, slots: int = 2, generator_seconds: float = 20.0, generator_memory: int = 0
    ) -> AsyncIterator[Self]:
        """Context manager of a cluster whose scheduler is not started yet."""
        made = cls(data, slots, generator_seconds, generator_memory)
        await made.appstat.start()
        await made.hpgen.start()
        try:
            yield made
        finally:
            await made._stop()

    @property
    def live(self) -> Runtime:
        """Return the runtime of the running scheduler."""
        assert self.scheduler is not None
        return self.scheduler._runtime

    async def start(self, **settings: Any) -> None:
        """Start a scheduler at the same address as the earlier one."""
        self.scheduler = SchedulerService(
            appstat=self.appstat.address, hpgen=self.hpgen.address, data=self._data / "scheduler", **settings
        )
        self.address = await self.scheduler.start()
        if self.agent is None:
            self.agent = NodeAgent(
                AgentSettings(node="n", scheduler=self.address, data=self._data / "agent", slots=self._slots)
            )
            await self.agent.start()

    async def halt(self) -> None:
        """Stop the scheduler only."""
        assert self.scheduler is not None
        await self.scheduler.stop(0)

    async def _stop(self) -> None:
        if self.agent is not None:
            await self.agent.stop()
        if self.scheduler is not None:
            await self.scheduler.stop(1)
        await self.hpgen.stop(1)
        await self.appstat.stop(1)
