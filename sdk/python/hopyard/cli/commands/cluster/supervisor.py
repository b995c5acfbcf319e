"""`hopyard up`: services as processes of their own, restarted when they die, stopped in order."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from hopyard._common import formatting
from hopyard._net.rpc import Backoff
from hopyard.cli.errors import EXIT_DONE, Interrupted
from hopyard.cli.interrupts import Interrupts
from hopyard.cli.output import say, show
from hopyard.client.local_cluster.data_dir_lock import DataLock, acquire_when_free
from hopyard.client.local_cluster.embedded import agent_service
from hopyard.client.local_cluster.processes import LOCK_SECONDS, ServiceProcess, ServiceSpec
from hopyard.errors import HopyardError, Unavailable

CRASH_LIMIT: Final = 5
"""A service that died this often within `CRASH_SECONDS` is not restarted again: the cluster stops."""

CRASH_SECONDS: Final = 60.0


class Crashes:
    """Counts the deaths of one service.

    Args:
        limit: How many within `seconds` are too many.
        seconds: How long a death counts.
    """

    def __init__(self, limit: int = CRASH_LIMIT, seconds: float = CRASH_SECONDS) -> None:
        self._limit = limit
        self._seconds = seconds
        self._times: list[float] = []

    def died(self, now: float) -> int:
        """Count a death at `now` (monotonic seconds); answers how many count just now."""
        self._times = [at for at in self._times if at > now - self._seconds] + [now]
        return len(self._times)

    @property
    def too_many(self) -> bool:
        """Whether to give up."""
        return len(self._times) >= self._limit


def reserved_port(host: str, port: int = 0) -> socket.socket | None:
    """Bind a port without listening on it, so that the kernel gives it to nobody else while its service is down.

    Whoever sets SO_REUSEADDR, as gRPC's servers do, may listen there.

    Args:
        host: Where the service will listen.
        port: The port; 0 takes a free one.

    Returns:
        The bound socket; None: the port cannot be bound, as the service will say.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError:
        return None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        return None
    return bound


class Supervisor:
    """Keeps one service running, on the port it got first. The port stays reserved while the service is down.

    Args:
        process: The service's process.
        note: Told of what happens, a line a time.
        backoff: Waits before a restart.
        crashes: When to give up.
    """

    def __init__(
        self,
        process: ServiceProcess,
        note: Callable[[str], None],
        *,
        backoff: Backoff | None = None,
        crashes: Crashes | None = None,
    ) -> None:
        self.process = process
        self.restarts = 0
        self._note = note
        self._backoff = backoff or Backoff(first=0.5, most=10.0)
        self._crashes = crashes or Crashes()
        self._port: str | None = None
        self._reserved: socket.socket | None = None

    @property
    def name(self) -> str:
        """The service's name."""
        return self.process.service.name

    async def start(self, port: int = 0, host: str = "127.0.0.1") -> str:
        """Start it, and wait until it serves; answers its address."""
        self._reserved = reserved_port(host, port)
        if self._reserved is not None:
            port = self._reserved.getsockname()[1]
        await self.process.start(["--port", str(port)])
        address = await self.process.ready()
        # Others know it by this address, so it comes back there.
        self._port = address.rpartition(":")[2]
        return address

    def close(self) -> None:
        """Give the port back; the service has been stopped."""
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    async def keep(self) -> None:
        """Restart it whenever it dies.

        Raises:
            Unavailable: It died too often; the message ends with the end of its log.
        """
        while True:
            await self.process.wait()
            deaths = self._crashes.died(time.monotonic())
            words = self.process.obituary()
            if self._crashes.too_many:
                raise Unavailable(
                    f"{self.name} died {deaths} times within {CRASH_SECONDS:g} s and is given up: {words}"
                )
            wait = self._backoff.bound(deaths)
            self._note(
                f"{words.splitlines()[0].partition(';')[0]}; restarting it in {wait:.1f} s (log: {self.process.log})"
            )
            await asyncio.sleep(wait)
            await self.process.start(["--port", self._port or "0"])
            try:
                await self.process.ready()
            except HopyardError as error:
                self._note(str(error).splitlines()[0])
                await self.process.stop(grace=1.0)
                continue
            self.restarts += 1
            self._note(f"{self.name} serves again (process {self.process.pid})")


class ClusterServices:
    """All services of a cluster.

    They stop in the reverse order of their start: agents first, so that they can still hand over what they have; then the
    scheduler, hpgen, and AppStat last, which everything is written to.

    Args:
        data: The data directory.
        agents: How many node agents.
        slots: Slots of each.
        note: Told of what happens.
        snapshot_quota: Bytes that the snapshot folder of each agent may hold, as text; None: no limit.
        store_quota: Bytes that the snapshots of all experiments may take in the store, as text; None: as many as before.
    """

    def __init__(
        self,
        data: Path,
        *,
        agents: int,
        slots: int,
        note: Callable[[str], None],
        snapshot_quota: str | None = None,
        store_quota: str | None = None,
    ) -> None:
        self.data = data.absolute()
        self.supervisors: list[Supervisor] = []
        self._agents = agents
        self._slots = slots
        self._note = note
        self._snapshot_quota = snapshot_quota
        self._store_quota = store_quota
        self._lock: DataLock | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0, *, insecure: bool = False) -> str:
        """Start everything; answers the scheduler's address."""
        self._lock = await acquire_when_free(self.data, "hopyard up", patience=LOCK_SECONDS, note=self._note)
        where = ["--host", host, *(["--insecure"] if insecure else [])]
        data = ["--data", str(self.data)]
        appstat = await self._start(self._service("appstat", [*data, *where]), host=host)
        hpgen = await self._start(self._service("hpgen", data))
        quota = ["--store-quota", self._store_quota] if self._store_quota is not None else []
        scheduler = await self._start(
            self._service("scheduler", [*data, *where, "--appstat", appstat, "--hpgen", hpgen, *quota]), port, host
        )
        for number in range(1, self._agents + 1):
            node = f"node{number}"
            folder = self.data / f"agent-{node}"
            agent = agent_service(folder, scheduler, self._slots, node, snapshot_quota=self._snapshot_quota)
            # Agents of other computers fetch snapshots from these, and clients their logs.
            await self._start(replace(agent, arguments=(*agent.arguments, *where)), host=host)
        return scheduler

    async def keep(self) -> None:
        """Restart what dies; raises when a service is given up."""
        tasks = [asyncio.create_task(one.keep(), name=f"keep {one.name}") for one in self.supervisors]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def stop(self) -> None:
        """Stop everything in order. Safe to call twice."""
        supervisors = self.supervisors
        for kind in ("agent", ""):
            # Agents side by side, the rest one after the other.
            chosen = [one for one in reversed(supervisors) if one.name.startswith("agent") is bool(kind)]
            if kind:
                await asyncio.gather(*(one.process.stop() for one in chosen))
            else:
                for one in chosen:
                    await one.process.stop()
        for one in supervisors:
            one.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def kill(self) -> None:
        """End everything at once; `stop` must still be awaited."""
        for one in self.supervisors:
            one.process.kill()

    def status(self) -> Sequence[tuple[str, str, str, str]]:
        """Name, address, process id and log of each service."""
        return [
            (one.name, one.process.address or formatting.NOTHING, str(one.process.pid), str(one.process.log))
            for one in self.supervisors
        ]

    def _service(self, name: str, arguments: list[str]) -> ServiceSpec:
        return ServiceSpec(name, f"hopyard_{name}", tuple(arguments), self.data, name)

    async def _start(self, service: ServiceSpec, port: int = 0, host: str = "127.0.0.1") -> str:
        if self._lock is None:
            raise RuntimeError("not started")
        process = ServiceProcess(service, self.data / "logs", [self._lock.descriptor])
        supervisor = Supervisor(process, self._note)
        self.supervisors.append(supervisor)
        return await supervisor.start(port, host)


def run_cluster(
    data: Path,
    *,
    slots: int,
    agents: int,
    host: str,
    port: int,
    insecure: bool,
    snapshot_quota: str | None = None,
    store_quota: str | None = None,
) -> int:
    """Carry out `hopyard up`; answers the exit code."""

    async def main() -> int:
        cluster = ClusterServices(
            data, agents=agents, slots=slots, note=say, snapshot_quota=snapshot_quota, store_quota=store_quota
        )
        with Interrupts() as interrupts:
            try:
                await interrupts.unless(interrupts.first, cluster.start(host, port, insecure=insecure))
                _show(cluster)
                await interrupts.unless(interrupts.first, cluster.keep())
            except Interrupted:
                say("stopping (Ctrl-C again ends everything at once)")
            finally:
                try:
                    await interrupts.unless(interrupts.second, cluster.stop())
                except Interrupted:
                    cluster.kill()
                    await cluster.stop()
        return EXIT_DONE

    return asyncio.run(main())


def _show(cluster: ClusterServices) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("service", "address", "process", "log"):
        table.add_column(column, no_wrap=True)
    for row in cluster.status():
        table.add_row(*row)
    show(table, stderr=True)
    scheduler = next(one.process.address for one in cluster.supervisors if one.name == "scheduler")
    say(f"the cluster is up: hopyard run FILE --server {scheduler}   (Ctrl-C stops it)")
