"""A local cluster in a data directory: one child process runs the services, another one the node agent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

from hopyard._common.environment import EVERYTHING
from hopyard._common.plugins import READERS, load_plugin
from hopyard._runtime.gpus import AUTOMATIC, GpuOptions, lay_out_slots
from hopyard.client.local_cluster.data_dir_lock import DataLock, acquire_when_free
from hopyard.client.local_cluster.processes import LOCK_SECONDS, STOP_SECONDS, ServiceProcess, ServiceSpec
from hopyard.client.local_cluster.registration import REGISTRATION_SECONDS, wait_for_node
from hopyard.errors import Conflict, InvalidInput, Unavailable

_log = logging.getLogger(__name__)

NODE: Final = "local"

AGENT_GRACE_SECONDS: Final = 10.0
"""Seconds that the runs of a node may take to be suspended when a local cluster stops its agent. It is less than `STOP_SECONDS`."""


def scheduler_service(data: Path, synchronous: str = "normal") -> ServiceSpec:
    """Return the command of the process that runs scheduler, AppStat and hpgen together, on the data directory `data`.

    `synchronous` is the durability of the database: `normal` (committed data survives the death of any process) or `full` (also a
    power failure).
    """
    arguments = ("--data", str(data), "--synchronous", synchronous)
    return ServiceSpec("scheduler", "hopyard._net.server.embedded", arguments, data, "scheduler")


def agent_service(
    data: Path,
    scheduler: str,
    slots: int | None,
    node: str = NODE,
    *,
    cpus: int | None = None,
    gpus: GpuOptions = AUTOMATIC,
    snapshot_quota: str | None = None,
    pass_env: Sequence[str] = (),
) -> ServiceSpec:
    """Return the command of the process of a node agent.

    Args:
        data: The agent's folder.
        scheduler: Address of the scheduler, or its data directory, in which the agent waits for the address file.
        slots: Number of slots of the node; None: one per GPU, else one.
        node: Name of the node.
        cpus: CPU threads of each slot; None: the CPUs of this host, divided equally.
        gpus: The options for its GPUs.
        snapshot_quota: Quota of the snapshot folder, such as "50GiB"; None: no quota.
        pass_env: Patterns of names of environment variables that training processes get, in addition to the usual ones.
    """
    arguments: tuple[str, ...] = ("--scheduler", scheduler, "--data", str(data), "--node", node)
    arguments += ("--grace", f"{AGENT_GRACE_SECONDS:g}", *gpus.arguments)
    if slots is not None:
        arguments += ("--slots", str(slots))
    if cpus is not None:
        arguments += ("--cpus-per-slot", str(cpus))
    if snapshot_quota is not None:
        arguments += ("--snapshot-quota", snapshot_quota)
    for pattern in pass_env:
        arguments += ("--pass-env", pattern)
    return ServiceSpec("agent" if node == NODE else f"agent-{node}", "hopyard_nodeagent", arguments, data, "agent")


def agent_folders(data: Path) -> dict[str, Path]:
    """Return the folders of the node agents that have run in the data directory `data`, by the id of their node.

    `hopyard run` starts the agent of the node "local" in `agent`, `hopyard up` those of "node1", "node2", ... in `agent-NODE`.
    """
    found = {NODE: data / "agent", **{path.name.removeprefix("agent-"): path for path in sorted(data.glob("agent-*"))}}
    return {node: folder for node, folder in found.items() if folder.is_dir()}


def check_database(data: Path, *, adopt: bool = False) -> None:
    """Raise an error if the database in a data directory is lost or damaged, before services start there.

    Args:
        data: The data directory.
        adopt: Whether a store of another cluster may belong to the cluster of the database.

    Raises:
        DataLoss: The database is damaged.
        Conflict: The database is missing or empty although the store belongs to a cluster.
    """
    check: Any = load_plugin(READERS, "database")
    check(data, adopt=adopt)


def check_journal(data: Path) -> None:
    """Raise an error if the journal of the cluster itself is damaged. Call it when a service in the data directory did not start.

    Raises:
        DataLoss: The journal, or the file of the database, is damaged. The message of the first names the position.
    """
    check: Any = load_plugin(READERS, "database")
    with suppress(Conflict, Unavailable):  # It cannot be read now, so that is not known.
        check(data, adopt=True, journal=True)


class EmbeddedCluster:
    """A local cluster that runs from `start` to `stop`.

    Its state is in the data directory: experiments that are unfinished at `stop` continue at the next `start`.

    Args:
        data: The data directory. It is created if it is missing.
        slots: Number of slots of the node agent; None: one per GPU, else one; 0: no agent, so nothing trains.
        cpus: CPU threads of each slot; None: the CPUs of this host, divided equally.
        gpus: The options for the GPUs of the slots.
        announce: Whether to log what a user should know about the slots and GPUs.
        purpose: Description of this cluster in the error message of others that find the directory locked.
        synchronous: Durability of the database. `normal`: committed data survives the death of any process; `full`:
            also a power failure.
    """

    def __init__(
        self,
        data: str | Path,
        *,
        slots: int | None = 1,
        cpus: int | None = None,
        gpus: GpuOptions = AUTOMATIC,
        announce: bool = False,
        purpose: str = "an embedded cluster",
        synchronous: Literal["normal", "full"] = "normal",
    ) -> None:
        if slots is not None and slots < 0:
            raise InvalidInput(f"slots: found {slots}, allowed is 0 or more")
        self.data = Path(data).absolute()
        self.slots = slots
        self._cpus = cpus
        self._gpus = gpus
        self._announce = announce
        self._purpose = purpose
        self._synchronous = synchronous
        self._lock: DataLock | None = None
        self._processes: list[ServiceProcess] = []
        self._scheduler = ""

    async def start(self) -> str:
        """Start the processes, wait until they serve requests and the agent has registered, and return the scheduler's address.

        An agent that has not registered after `REGISTRATION_SECONDS` is not awaited any longer.

        Raises:
            InvalidInput: The numbers of slots and GPUs contradict each other or this computer.
            Conflict: Another cluster holds the lock of the directory (the message names its process), or the database is lost.
            DataLoss: The database, or the journal of the cluster itself, is damaged.
            Unavailable: A process exited, such as an agent whose folder belongs to another cluster. The message ends with the last
                lines of its log.
            TimedOut: A process did not serve requests in time. The message ends in the same way.
        """
        self._lock = await acquire_when_free(self.data, self._purpose, patience=LOCK_SECONDS, note=_log.info)
        try:
            check_database(self.data)
            # They start together: the agent waits for the scheduler's address file in the data directory.
            starting = [await self._begin(scheduler_service(self.data, self._synchronous))]
            if self.slots != 0:
                # The agent would report a contradiction in its log only.
                layout = await asyncio.to_thread(lay_out_slots, self._gpus, self.slots)
                if self._announce:
                    for note in layout.notes:
                        _log.info("%s", note)
                    for warning in layout.warnings:
                        _log.warning("%s", warning)
                starting.append(await self._begin(self._agent(str(self.data))))
            scheduler, *_ = [await process.ready() for process in starting]
            self._scheduler = scheduler
            if self.slots != 0:
                await self._registered()
        except BaseException as error:
            await self.stop(grace=2.0)
            if isinstance(error, Unavailable):
                await asyncio.to_thread(check_journal, self.data)
            raise
        return scheduler

    async def start_agent(self, slots: int, cpus: int | None = None, *, gpus: GpuOptions = AUTOMATIC) -> None:
        """Start a node agent in a started cluster that has none, and wait for it as `start` does. It raises the errors of `start`.

        Args:
            slots: Number of slots of the agent.
            cpus: CPU threads of each slot; None: the CPUs of this host, divided equally.
            gpus: The options for the GPUs of the slots.
        """
        self.slots, self._cpus, self._gpus = slots, cpus, gpus
        await (await self._begin(self._agent(self._scheduler))).ready()
        await self._registered()

    async def _registered(self) -> None:
        """Wait at most `REGISTRATION_SECONDS` until the agent has registered with the scheduler. Raise the error of `died`."""
        registered = asyncio.create_task(wait_for_node(self._scheduler, NODE), name="registration")
        died = asyncio.create_task(self.died(), name="cluster")
        try:
            await asyncio.wait((registered, died), timeout=REGISTRATION_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if died.done():
                died.result()
            if registered.done():
                registered.result()
            else:
                _log.warning(
                    "the node agent has not registered within %g s; nothing trains before it has", REGISTRATION_SECONDS
                )
        finally:
            for task in (registered, died):
                task.cancel()
            await asyncio.gather(registered, died, return_exceptions=True)

    def _agent(self, scheduler: str) -> ServiceSpec:
        return agent_service(
            self.data / "agent",
            scheduler,
            self.slots,
            cpus=self._cpus,
            gpus=self._gpus,
            pass_env=[EVERYTHING],  # It trains only for the user whose environment it is.
        )

    async def died(self) -> None:
        """Wait until one of the processes exits without a call of `stop`. It never returns normally.

        Raises:
            Unavailable: A process has exited. The message ends with the last lines of its log.
        """
        waits = [asyncio.create_task(process.wait(), name=process.service.name) for process in self._processes]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        dead = next(process for process in self._processes if not process.running)
        raise Unavailable(dead.exit_message())

    async def stop(self, grace: float = STOP_SECONDS) -> None:
        """Stop the agent, which first delivers its pending messages, then the services, and release the lock. Safe to call twice.

        Args:
            grace: Seconds that each process may take to exit before it is killed.
        """
        for process in reversed(self._processes):
            await process.stop(grace)
        if self._lock is not None:
            self._lock.release()
            self._lock = None
            self._processes = []

    def kill(self) -> None:
        """Kill all processes immediately. `stop` must still be awaited."""
        for process in self._processes:
            process.kill()

    async def _begin(self, service: ServiceSpec) -> ServiceProcess:
        if self._lock is None:
            raise RuntimeError("not started")
        process = ServiceProcess(service, self.data / "logs", [self._lock.descriptor])
        self._processes.append(process)
        await process.start()
        return process
