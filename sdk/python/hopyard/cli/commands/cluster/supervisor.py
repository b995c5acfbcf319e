"""Implements `hopyard up`: runs each service in a process, restarts those that crash, and stops all in order."""

from __future__ import annotations

import asyncio
import shlex
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from hopyard._common import formatting
from hopyard._net.auth.secrets_folder import SECRETS
from hopyard._net.rpc import Backoff
from hopyard._net.rpc.address import is_socket
from hopyard._net.server.addresses import check_bind
from hopyard._runtime.gpus import AUTOMATIC, GpuOptions
from hopyard._runtime.gpus.layout import agent_layouts
from hopyard.cli.errors import EXIT_DONE, Interrupted
from hopyard.cli.interrupts import Interrupts
from hopyard.cli.output import say, show
from hopyard.client.local_cluster.data_dir_lock import DataLock, acquire_when_free
from hopyard.client.local_cluster.embedded import agent_service, check_database, check_journal
from hopyard.client.local_cluster.processes import LOCK_SECONDS, ServiceProcess, ServiceSpec
from hopyard.errors import HopyardError, Unavailable

CRASH_LIMIT: Final = 5
"""Number of crashes within `CRASH_SECONDS` after which a service is not restarted, and the cluster stops."""

CRASH_SECONDS: Final = 60.0  # the window in which crashes are counted


class CrashCounter:
    """Counts the crashes of one service within a sliding time window.

    Args:
        limit: Number of crashes within the window from which on the service is not restarted.
        seconds: Length of the window in seconds.
    """

    def __init__(self, limit: int = CRASH_LIMIT, seconds: float = CRASH_SECONDS) -> None:
        self._limit = limit
        self._seconds = seconds
        self._times: list[float] = []

    def died(self, now: float) -> int:
        """Record a crash at `now` (monotonic seconds), and return the number of crashes in the window that ends then."""
        self._times = [at for at in self._times if at > now - self._seconds] + [now]
        return len(self._times)

    @property
    def too_many(self) -> bool:
        """Whether the number of crashes has reached the limit, so that the service must not be restarted."""
        return len(self._times) >= self._limit


def reserved_port(host: str, port: int = 0) -> socket.socket | None:
    """Bind a TCP port without listening on it, so that the kernel does not assign it to another process while the service is down.

    A process that sets SO_REUSEADDR, as gRPC servers do, can still listen on it.

    Args:
        host: The address on which the service will listen.
        port: The port; 0: a free one.

    Returns:
        The bound socket; None: the port cannot be bound, and the service will report the error.
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
    """Restarts one service whenever it exits, always on the same port. The port stays reserved while the service is down.

    Args:
        process: The process of the service.
        note: Called with a line of text about each crash and restart.
        backoff: The backoff between restarts; None: 0.5 to 10 seconds.
        crashes: The crash counter that ends the restarts; None: five crashes within 60 seconds end them.

    Attributes:
        restarts: Number of successful restarts.
    """

    def __init__(
        self,
        process: ServiceProcess,
        note: Callable[[str], None],
        *,
        backoff: Backoff | None = None,
        crashes: CrashCounter | None = None,
    ) -> None:
        self.process = process
        self.restarts = 0
        self._note = note
        self._backoff = backoff or Backoff(first=0.5, most=10.0)
        self._crashes = crashes or CrashCounter()
        self._options: list[str] = []
        self._reserved: socket.socket | None = None

    @property
    def name(self) -> str:
        """Name of the service."""
        return self.process.service.name

    async def start(self, port: int = 0, host: str | None = None) -> str:
        """Start the service, wait until it serves requests, and return its address.

        Args:
            port: The TCP port; 0: a free one.
            host: The address of the TCP port on which the service listens; None: a Unix socket.

        Raises:
            Unavailable: The service exited before it served requests. The message ends with the last lines of its log.
            TimedOut: The service did not serve requests in time. The message ends in the same way.
        """
        if host is None:
            await self.process.start()
            return await self.process.ready()
        self._reserved = reserved_port(host, port)
        if self._reserved is not None:
            port = self._reserved.getsockname()[1]
        await self.process.start(["--port", str(port)])
        address = await self.process.ready()
        # Other services know this address, so restarts use the same port.
        self._options = ["--port", address.rpartition(":")[2]]
        return address

    def close(self) -> None:
        """Release the reserved port. Call it after the service was stopped."""
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    async def keep(self) -> None:
        """Restart the service whenever it exits. It never returns normally; cancel it to stop.

        Raises:
            Unavailable: The service crashed too often. The message ends with the last lines of its log.
        """
        while True:
            await self.process.wait()
            deaths = self._crashes.died(time.monotonic())
            words = self.process.exit_message()
            if self._crashes.too_many:
                raise Unavailable(
                    f"{self.name} crashed {deaths} times within {CRASH_SECONDS:g} s and is not restarted again: {words}"
                )
            wait = self._backoff.bound(deaths)
            self._note(
                f"{words.splitlines()[0].partition(';')[0]}; restarting it in {wait:.1f} s (log: {self.process.log})"
            )
            await asyncio.sleep(wait)
            await self.process.start(self._options)
            try:
                await self.process.ready()
            except HopyardError as error:
                self._note(str(error).splitlines()[0])
                await self.process.stop(grace=1.0)
                continue
            self.restarts += 1
            self._note(f"{self.name} serves again (process {self.process.pid})")


class ClusterServices:
    """All services of a cluster, each in its own process: AppStat, hpgen, the scheduler and node agents.

    They stop in reverse order of their start: agents first, so that they can deliver their pending messages, then the
    scheduler and hpgen, and AppStat last, since all others write to it.

    Args:
        data: The data directory.
        agents: Number of node agents.
        slots: Number of slots of each agent; None: one per GPU, else one.
        gpus: The options for the GPUs of all agents.
        note: Called with a line of text about each crash and restart.
        snapshot_quota: Quota of the snapshot folder of each agent, such as "50GiB"; None: no quota.
        store_quota: Quota of the snapshots in the store, such as "500GiB"; "none": no quota; None: unchanged.
        keep_unknown: Time for which nodes keep unused snapshots of which the cluster has no record, such as "7d"; None: the default.
        pass_env: Patterns of names of environment variables that training, policies, generators and predictors get from the
            environment of this command, in addition to the usual ones.
        adopt: Whether the store and the agents' folders in the data directory belong to the cluster of its database from now on.
    """

    def __init__(
        self,
        data: Path,
        *,
        agents: int,
        slots: int | None,
        note: Callable[[str], None],
        gpus: GpuOptions = AUTOMATIC,
        snapshot_quota: str | None = None,
        store_quota: str | None = None,
        keep_unknown: str | None = None,
        pass_env: Sequence[str] = (),
        adopt: bool = False,
    ) -> None:
        self.data = data.absolute()
        self.supervisors: list[Supervisor] = []
        self._agents = agents
        self._slots = slots
        self._gpus = gpus
        self._note = note
        self._snapshot_quota = snapshot_quota
        self._store_quota = store_quota
        self._keep_unknown = keep_unknown
        self._pass_env = tuple(pass_env)
        self._adopt = adopt
        self._lock: DataLock | None = None

    async def start(self, host: str | None = None, port: int = 0, *, insecure: bool = False) -> str:
        """Lock the data directory, start all services, and return the scheduler's address.

        Args:
            host: The address of the TCP ports on which services listen; None: Unix sockets.
            port: The scheduler's TCP port; 0: a free one.
            insecure: Whether to allow TCP without encryption.

        Raises:
            InvalidInput: The numbers of agents, slots and GPUs contradict each other or this computer.
            Conflict: Another cluster holds the lock of the data directory, or the database is lost.
            DataLoss: The database is damaged.
            Unavailable: A service exited before it served requests. The message ends with the last lines of its log.
            TimedOut: A service did not serve requests in time. The message ends in the same way.
        """
        check_bind(host, port, insecure=insecure)
        layouts = await asyncio.to_thread(agent_layouts, self._gpus, self._slots, self._agents)
        for layout in layouts[:1]:
            each = " on each agent" if self._agents > 1 and layout.devices else ""
            for note in layout.notes:
                self._note(note + each)
            for warning in layout.warnings:
                self._note(f"warning: {warning}")
        self._lock = await acquire_when_free(self.data, "hopyard up", patience=LOCK_SECONDS, note=self._note)
        check_database(self.data, adopt=self._adopt)
        where = ["--host", host, *(["--insecure"] if insecure else [])] if host is not None else []
        data = ["--data", str(self.data)]
        adopt = ["--adopt"] if self._adopt else []
        appstat = await self._start(self._service("appstat", [*data, *where, *adopt]), host=host)
        passed = [word for pattern in self._pass_env for word in ("--pass-env", pattern)]
        hpgen = await self._start(self._service("hpgen", [*data, *passed]))
        options = ["--store-quota", self._store_quota] if self._store_quota is not None else []
        options += ["--keep-unknown", self._keep_unknown] if self._keep_unknown is not None else []
        scheduler = await self._start(
            self._service("scheduler", [*data, *where, "--appstat", appstat, "--hpgen", hpgen, *options, *passed]),
            port,
            host,
        )
        # With the folder, an agent finds its token also if the scheduler listens on a TCP port.
        found_by = scheduler if host is None else str(self.data.absolute())
        for number, layout in enumerate(layouts, 1):
            node = f"node{number}"
            folder = self.data / f"agent-{node}"
            agent = agent_service(
                folder,
                found_by,
                len(layout.slots),
                node,
                gpus=layout.options,
                snapshot_quota=self._snapshot_quota,
                pass_env=self._pass_env,
            )
            # Agents on other computers fetch snapshots from this agent, and clients fetch logs.
            await self._start(replace(agent, arguments=(*agent.arguments, *where, *adopt)), host=host)
        return scheduler

    async def keep(self) -> None:
        """Restart services that exit. It never returns normally; cancel it to stop.

        Raises:
            Unavailable: A service has crashed too often.
        """
        tasks = [asyncio.create_task(one.keep(), name=f"keep {one.name}") for one in self.supervisors]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def stop(self) -> None:
        """Stop all services in order, and release the lock of the data directory. Safe to call twice."""
        supervisors = self.supervisors
        for kind in ("agent", ""):
            # Agents stop in parallel, the other services one after another.
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
        """Kill all processes immediately. `stop` must still be awaited, since it releases the lock and the ports."""
        for one in self.supervisors:
            one.process.kill()

    def status(self) -> Sequence[tuple[str, str, str, str]]:
        """Return name, address, process id and log file of each service as texts, in the order of their start."""
        return [
            (one.name, one.process.address or formatting.NOTHING, str(one.process.pid), str(one.process.log))
            for one in self.supervisors
        ]

    def _service(self, name: str, arguments: list[str]) -> ServiceSpec:
        return ServiceSpec(name, f"hopyard_{name}", tuple(arguments), self.data, name)

    async def _start(self, service: ServiceSpec, port: int = 0, host: str | None = None) -> str:
        if self._lock is None:
            raise RuntimeError("not started")
        process = ServiceProcess(service, self.data / "logs", [self._lock.descriptor])
        supervisor = Supervisor(process, self._note)
        self.supervisors.append(supervisor)
        return await supervisor.start(port, host)


def run_cluster(
    data: Path,
    *,
    slots: int | None,
    gpus: GpuOptions,
    agents: int,
    host: str | None,
    port: int,
    insecure: bool,
    snapshot_quota: str | None = None,
    store_quota: str | None = None,
    keep_unknown: str | None = None,
    pass_env: Sequence[str] = (),
    adopt: bool = False,
) -> int:
    """Run `hopyard up` until a signal or a closed output ends it, and return the exit code 0.

    Args:
        data: The data directory of the cluster.
        slots: Number of slots of each node agent; None: one per GPU, else one.
        gpus: The options for the GPUs of all agents.
        agents: Number of node agents.
        host: The address of the TCP ports on which services listen; None: Unix sockets.
        port: The scheduler's TCP port; 0: a free one.
        insecure: Whether to allow TCP without encryption.
        snapshot_quota: Quota of the snapshot folder of each agent, such as "50GiB"; None: no quota.
        store_quota: Quota of the snapshots in the store, such as "500GiB"; "none": no quota; None: unchanged.
        keep_unknown: Time for which nodes keep unused snapshots of which the cluster has no record, such as "7d"; None: the default.
        pass_env: Patterns of names of environment variables that training, policies, generators and predictors get from the
            environment of this command, in addition to the usual ones.
        adopt: Whether the store and the agents' folders in the data directory belong to the cluster of its database from now on.

    Raises:
        Conflict: Another cluster holds the lock of the data directory.
        DataLoss: The database, or the journal of the cluster itself, is damaged.
        Unavailable: A service exited before it served requests, or crashed too often. All services are stopped.
        TimedOut: A service did not serve requests in time. All services are stopped.
    """

    async def main() -> int:
        cluster = ClusterServices(
            data,
            agents=agents,
            slots=slots,
            gpus=gpus,
            note=say,
            snapshot_quota=snapshot_quota,
            store_quota=store_quota,
            keep_unknown=keep_unknown,
            pass_env=pass_env,
            adopt=adopt,
        )
        with Interrupts() as interrupts:
            try:
                await interrupts.unless(interrupts.first, cluster.start(host, port, insecure=insecure))
                _show(cluster, data)
                await interrupts.unless(interrupts.first, cluster.keep())
            except Interrupted:
                say(f"stopping ({interrupts.to_quit} ends everything at once)")
            except Unavailable:
                await asyncio.to_thread(check_journal, data)
                raise
            finally:
                try:
                    await interrupts.unless(interrupts.second, cluster.stop())
                except Interrupted:
                    cluster.kill()
                    await cluster.stop()
        return EXIT_DONE

    return asyncio.run(main())


def _show(cluster: ClusterServices, data: Path) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("service", "address", "process", "log"):
        table.add_column(column, no_wrap=True)
    for row in cluster.status():
        table.add_row(*row)
    show(table, stderr=True)
    scheduler = next(one.process.address for one in cluster.supervisors if one.name == "scheduler")
    where = f"--data {shlex.quote(str(data))}"
    if scheduler and not is_socket(scheduler):
        tokens = shlex.quote(str(data / SECRETS))
        say(f"other computers need --server {scheduler} and a copy of {tokens}/user.token in $HOPYARD_USER_TOKEN_FILE")
        say(
            f"agents on them need --scheduler {scheduler} and a copy of {tokens}/node.token in $HOPYARD_NODE_TOKEN_FILE"
        )
    say(f"the cluster is up: hopyard run FILE {where}   (Ctrl-C stops it)")
