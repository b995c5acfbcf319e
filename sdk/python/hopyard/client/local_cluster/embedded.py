"""A cluster of one's own in a directory: its services in one child process, its node agent in another."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final, Literal

from hopyard.client.local_cluster.data_dir_lock import DataLock, acquire_when_free
from hopyard.client.local_cluster.processes import LOCK_SECONDS, STOP_SECONDS, ServiceProcess, ServiceSpec
from hopyard.errors import InvalidInput, Unavailable

_log = logging.getLogger(__name__)

NODE: Final = "local"


def scheduler_service(data: Path, synchronous: str = "normal") -> ServiceSpec:
    """The process that serves scheduler, AppStat and hpgen together; `synchronous` as in `EmbeddedCluster`."""
    arguments = ("--data", str(data), "--synchronous", synchronous)
    return ServiceSpec("scheduler", "hopyard._net.server.embedded", arguments, data, "scheduler")


def agent_service(
    data: Path,
    scheduler: str,
    slots: int,
    node: str = NODE,
    *,
    cpus: int | None = None,
    snapshot_quota: str | None = None,
) -> ServiceSpec:
    """A node agent with `slots` slots; its files lie in `data`.

    Args:
        data: Its folder.
        scheduler: Address.
        slots: Slots.
        node: Its name.
        cpus: CPU threads of each slot; None: this host's, shared evenly.
        snapshot_quota: Bytes of snapshots that it keeps at most, such as 50GiB; None: no limit.
    """
    arguments: tuple[str, ...] = ("--scheduler", scheduler, "--data", str(data), "--node", node, "--slots", str(slots))
    if cpus is not None:
        arguments += ("--cpus-per-slot", str(cpus))
    if snapshot_quota is not None:
        arguments += ("--snapshot-quota", snapshot_quota)
    return ServiceSpec("agent" if node == NODE else f"agent-{node}", "hopyard_nodeagent", arguments, data, "agent")


class EmbeddedCluster:
    """A cluster in a data directory, for as long as it is open.

    What was going on when it was closed stands in the directory, and goes on when it is opened again.

    Args:
        data: The directory; made where it is missing.
        slots: Slots of the node agent; 0: no agent, so nothing trains.
        cpus: CPU threads of each slot; None: this host's, shared evenly.
        purpose: For whoever finds the directory locked.
        synchronous: When the database waits for the disk. `normal`: what was acknowledged survives the death of any process;
            `full`: a power failure too.
    """

    def __init__(
        self,
        data: str | Path,
        *,
        slots: int = 1,
        cpus: int | None = None,
        purpose: str = "an embedded cluster",
        synchronous: Literal["normal", "full"] = "normal",
    ) -> None:
        if slots < 0:
            raise InvalidInput(f"slots: found {slots}, allowed is 0 or more")
        self.data = Path(data).absolute()
        self.slots = slots
        self._cpus = cpus
        self._purpose = purpose
        self._synchronous = synchronous
        self._lock: DataLock | None = None
        self._processes: list[ServiceProcess] = []
        self._scheduler = ""

    async def start(self) -> str:
        """Start it; answers the scheduler's address once everything serves.

        Raises:
            Conflict: Another cluster holds the directory; the message says which process.
            Unavailable, TimedOut: A service did not come up; the message ends with the end of its log.
        """
        self._lock = await acquire_when_free(self.data, self._purpose, patience=LOCK_SECONDS, note=_log.info)
        try:
            # Both begin at once: the agent finds the scheduler's address in its folder.
            starting = [await self._begin(scheduler_service(self.data, self._synchronous))]
            if self.slots:
                starting.append(await self._begin(self._agent(str(self.data))))
            scheduler, *_ = [await process.ready() for process in starting]
            self._scheduler = scheduler
        except BaseException:
            await self.stop(grace=2.0)
            raise
        return scheduler

    async def start_agent(self, slots: int, cpus: int | None = None) -> None:
        """Start a node agent with `slots` slots in a cluster that has none yet; raises like `start`.

        Each slot has `cpus` CPU threads; None: those of this host, shared evenly.
        """
        self.slots, self._cpus = slots, cpus
        await (await self._begin(self._agent(self._scheduler))).ready()

    def _agent(self, scheduler: str) -> ServiceSpec:
        return agent_service(self.data / "agent", scheduler, self.slots, cpus=self._cpus)

    async def died(self) -> None:
        """Wait until one of its processes ends by itself.

        Raises:
            Unavailable: When that happens; the message ends with the end of its log.
        """
        waits = [asyncio.create_task(process.wait(), name=process.service.name) for process in self._processes]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        dead = next(process for process in self._processes if not process.running)
        raise Unavailable(dead.obituary())

    async def stop(self, grace: float = STOP_SECONDS) -> None:
        """Stop it: first the agent, which hands over what it still has, then the services. Safe to call twice.

        Args:
            grace: Seconds each process gets before it is killed.
        """
        for process in reversed(self._processes):
            await process.stop(grace)
        if self._lock is not None:
            self._lock.release()
            self._lock = None
            self._processes = []

    def kill(self) -> None:
        """End all its processes at once; `stop` must still be awaited."""
        for process in self._processes:
            process.kill()

    async def _begin(self, service: ServiceSpec) -> ServiceProcess:
        if self._lock is None:
            raise RuntimeError("not started")
        process = ServiceProcess(service, self.data / "logs", [self._lock.descriptor])
        self._processes.append(process)
        await process.start()
        return process
