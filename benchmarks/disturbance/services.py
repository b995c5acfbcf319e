"""A cluster of single processes that reach each other through proxies, and the disturbances that are carried out on it."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil
from observation.marked_processes import MarkedProcesses

from disturbance.proxy import Effect, Proxy
from disturbance.schedule import Disturbance
from hopyard._net.auth.secrets_folder import SECRETS
from hopyard._net.rpc import Backoff
from hopyard.cli.commands.cluster.supervisor import CrashCounter, Supervisor
from hopyard.client.local_cluster.data_dir_lock import DataLock, acquire_when_free
from hopyard.client.local_cluster.embedded import agent_service
from hopyard.client.local_cluster.processes import LOCK_SECONDS, START_SECONDS, ServiceProcess, ServiceSpec, is_serving

AGENTS: Final = ("node1", "node2")
SLOTS: Final = 2
"""Slots of each agent."""

SERVICES: Final = ("scheduler", "appstat", "hpgen", *(f"agent-{node}" for node in AGENTS))
RUNNER: Final = "runner"
POLICY: Final = "policy"
"""Targets that are not services: a training process or another child of an agent, and a policy process."""

LINKS: Final = (
    "client-scheduler",
    "scheduler-appstat",
    "scheduler-hpgen",
    *(f"{node}-{service}" for node in AGENTS for service in ("scheduler", "appstat")),
)
PEERS: Final = tuple(f"{node}-peers" for node in AGENTS)
"""Links from all others to an agent, which fetch snapshots and logs; on Unix sockets only."""

MARK: Final = "CHAOS_MARK"
"""The environment variable by which the processes of a cluster are found."""

LEASE_SECONDS: Final = 10.0
HEARTBEAT_SECONDS: Final = 1.0
EFFECT_SECONDS: Final = 25.0
"""Seconds after a disturbance in which the lease of a node can end because of it: a lease, a restart and a reconnection.

All three are multiplied by the stretch of a cluster."""

_TOKENS: Final = ("user", "node", "service")

_NEVER: Final = 10**9


@dataclass(slots=True)
class Counts:
    """What was done to a cluster, and how often its services were started again.

    Attributes:
        done: The disturbances in order, as texts with their times.
        kinds: Number of disturbances by kind and target.
        spans: Begin and end of each disturbance, in seconds since the Unix epoch, and its target.
        missed: Number of disturbances without a process to disturb.
        restarts: Number of restarts by service.
        effect: Seconds after a disturbance in which the lease of a node can end because of it.
    """

    done: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    spans: list[tuple[float, float, str]] = field(default_factory=list)
    missed: int = 0
    restarts: dict[str, int] = field(default_factory=dict)
    effect: float = EFFECT_SECONDS

    def explains(self, node: str, at: float) -> bool:
        """Return whether the agent of a node, or its link to the scheduler, was disturbed so that its lease could end at a time."""
        own = (f"agent-{node}", f"{node}-scheduler")
        return any(begin <= at <= end + self.effect for begin, end, target in self.spans if target in own)


class _Agent(ServiceProcess):
    """An agent that others reach through a proxy in the place of its socket, because it names its address itself."""

    def __init__(self, service: ServiceSpec, logs: Path, proxy: Proxy) -> None:
        super().__init__(service, logs)
        self._proxy = proxy

    async def start(self, extra: Sequence[str] = ()) -> None:
        self._proxy.deafen()  # The agent would refuse to start while another process listens on its socket.
        await super().start(extra)

    async def ready(self, limit: float = START_SECONDS) -> str:
        address = await super().ready(limit)
        await self._proxy.interpose(address)
        return address


class Cluster:
    """AppStat, hpgen, the scheduler and two agents, each in a process that is started again when it dies.

    It is a context manager: at its end everything that was disturbed continues, and the services stop in order.

    Args:
        data: The data directory.
        tcp: Whether services and proxies listen on TCP ports of the loopback device; else on Unix sockets.
        environment: Variables for the services and, with `--pass-env`, for all their children.
        stretch: By how much leases are longer than usual, at least 1; for slow machines.

    Attributes:
        server: Address of the scheduler for clients, behind a proxy.
        processes: All processes of this cluster.
        exits: Messages about services that did not end in order.
    """

    def __init__(self, data: Path, *, tcp: bool, environment: Mapping[str, str], stretch: float = 1.0) -> None:
        self.data = data
        self.server = ""
        mark = f"{os.getpid()}-{data.name}-{os.urandom(4).hex()}"
        self.processes = MarkedProcesses(MARK, mark)
        self.exits: list[str] = []
        self.counts = Counts(effect=EFFECT_SECONDS * stretch)
        self.notes: list[str] = []
        self._host = "127.0.0.1" if tcp else None
        self._environment = {**environment, MARK: mark}
        self._stretch = stretch
        self._supervisors: dict[str, Supervisor] = {}
        self._proxies: dict[str, Proxy] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._pending: set[asyncio.Task[None]] = set()
        self._stops: Counter[psutil.Process] = Counter()
        self._exit = AsyncExitStack()
        self._lock: DataLock | None = None

    # ------------------------------------------------------------------------------------------------------ start and end

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def _start(self) -> None:
        # The lock makes the data a cluster's, which `hopyard jobs --data` reads later.
        self._lock = await acquire_when_free(self.data, "a benchmark", patience=LOCK_SECONDS, note=self.notes.append)
        # Short, because the path of a socket has at most 107 bytes.
        self._sockets = Path(self._exit.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        for kind in _TOKENS:
            self._environment[f"HOPYARD_{kind.upper()}_TOKEN_FILE"] = str(self.data / SECRETS / f"{kind}.token")
        appstat = await self._serve("appstat")  # It creates the tokens.
        hpgen = await self._serve("hpgen", *self._passed())
        near = ("--appstat", await self._link("scheduler-appstat", appstat))
        far = ("--hpgen", await self._link("scheduler-hpgen", hpgen))
        lease, heartbeat = (
            f"--lease={LEASE_SECONDS * self._stretch}",
            f"--heartbeat={HEARTBEAT_SECONDS * self._stretch}",
        )
        scheduler = await self._serve("scheduler", *near, *far, lease, heartbeat, *self._passed())
        self.server = await self._link("client-scheduler", scheduler)
        await asyncio.gather(*(self._serve_agent(node, scheduler, appstat) for node in AGENTS))
        self._keepers = [asyncio.create_task(one.keep(), name=name) for name, one in self._supervisors.items()]

    async def _serve_agent(self, node: str, scheduler: str, appstat: str) -> None:
        reached = await self._link(f"{node}-scheduler", scheduler)
        stored = await self._link(f"{node}-appstat", appstat)
        passed = [name for name in self._environment if not name.startswith("HOPYARD_")]
        made = agent_service(self.data / f"agent-{node}", reached, SLOTS, node, cpus=1, pass_env=passed)
        peers = None
        if self._host is None:
            peers = self._proxies[f"{node}-peers"] = Proxy("", "")
            self._exit.push_async_exit(peers)
        await self._begin(made, "--appstat", stored, peers=peers)

    def _passed(self) -> list[str]:
        return [f"--pass-env={name}" for name in self._environment if not name.startswith("HOPYARD_")]

    async def _serve(self, name: str, *arguments: str) -> str:
        return await self._begin(
            ServiceSpec(name, f"hopyard_{name}", ("--data", str(self.data), *arguments), self.data, name)
        )

    async def _begin(self, given: ServiceSpec, *arguments: str, peers: Proxy | None = None) -> str:
        where = ("--host", self._host, "--insecure") if self._host and given.name != "hpgen" else ()
        whole = ServiceSpec(
            given.name,
            given.module,
            (*given.arguments, *arguments, *where),
            given.data,
            given.address_name,
            self._environment,
        )
        logs = self.data / "logs"
        process = ServiceProcess(whole, logs) if peers is None else _Agent(whole, logs, peers)
        kept = Supervisor(process, self.notes.append, backoff=Backoff(0.2, 2.0), crashes=CrashCounter(_NEVER))
        self._supervisors[given.name] = kept
        return await kept.start(host=self._host if where else None)

    async def _link(self, name: str, target: str) -> str:
        listen = "127.0.0.1:0" if self._host else f"unix:{self._sockets / name}.sock"
        proxy = self._proxies[name] = await self._exit.enter_async_context(Proxy(target, listen))
        return proxy.address

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.calm()
        for task in self._keepers:
            task.cancel()
        ended = await asyncio.gather(*self._keepers, return_exceptions=True)
        self.exits += [f"{type(each).__name__}: {each}" for each in ended if isinstance(each, Exception)]
        agents = [name for name in self._supervisors if name.startswith("agent")]
        await asyncio.gather(*map(self._stop, agents))
        for name in ("scheduler", "hpgen", "appstat"):
            if name in self._supervisors:
                await self._stop(name)
        for one in self._supervisors.values():
            one.close()
        self.counts.restarts = {name: one.restarts for name, one in self._supervisors.items()}
        await self._exit.aclose()
        if self._lock is not None:
            self._lock.release()

    async def _stop(self, name: str) -> None:
        process = self._supervisors[name].process
        if process.pid is not None and process.running:
            await process.stop(60.0)
            if (code := await process.wait()) != 0:
                self.exits.append(f"{name} ended with {code} instead of 0 after SIGTERM")

    # ------------------------------------------------------------------------------------------------------ disturbances

    async def disturb(self, plan: Sequence[Disturbance], over: asyncio.Event) -> None:
        """Carry out a schedule. It ends early when `over` is set. What still lasts ends by itself, or with `calm`."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        for one in plan:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, began + one.at - loop.time())):
                    await over.wait()
            if over.is_set():
                return
            if self._do(one):
                self.counts.done.append(str(one))
                self.counts.kinds[f"{one.kind} {one.target}"] += 1
                now = time.time()
                self.counts.spans.append((now, now + one.seconds, one.target))
            else:
                self.counts.missed += 1

    async def calm(self) -> None:
        """End all disturbances, and let all stopped processes continue."""
        for task in list(self._pending):
            task.cancel()
        await asyncio.gather(*self._pending, return_exceptions=True)
        for proxy in self._proxies.values():
            proxy.heal()
        for process in self._stops:
            _send(process, signal.SIGCONT)
        self._stops.clear()

    async def recovered(self, limit: float) -> list[str]:
        """Wait at most `limit` seconds until all services serve again, and return the names of those that do not."""
        end = asyncio.get_running_loop().time() + limit
        while True:
            serving = await asyncio.gather(*map(self._serves, self._supervisors))
            absent = [name for name, serves in zip(self._supervisors, serving, strict=True) if not serves]
            if not absent or asyncio.get_running_loop().time() > end:
                return absent
            await asyncio.sleep(0.2)

    async def _serves(self, name: str) -> bool:
        process = self._supervisors[name].process
        peers = self._proxies.get(f"{name.removeprefix('agent-')}-peers")
        if not process.running or process.address is None or (peers is not None and not peers.listening):
            return False
        return await is_serving(process.address)

    @property
    def pending_ends(self) -> int:
        """Number of disturbances whose end is still to come."""
        return len(self._pending)

    def _do(self, one: Disturbance) -> bool:
        if one.kind in ("kill", "stop"):
            return self._signal(one)
        proxy, effect = self._proxies[one.target], None
        match one.kind:
            case "drop":
                effect = proxy.drop(one.direction)
            case "delay":
                effect = proxy.delay(one.latency, one.direction)
            case "cut" if one.seconds:
                effect = proxy.refuse()
            case "cut":
                proxy.cut()
            case _:
                proxy.half_close(one.direction)
        if one.seconds:
            self._later(self._heal(proxy, effect, one))
        return True

    async def _heal(self, proxy: Proxy, effect: Effect | None, one: Disturbance) -> None:
        await asyncio.sleep(one.seconds)
        if one.breaks:
            proxy.cut()
        if effect is not None:
            proxy.heal(effect)

    def _signal(self, one: Disturbance) -> bool:
        process = self._victim(one)
        if process is None or not _send(process, signal.SIGKILL if one.kind == "kill" else signal.SIGSTOP):
            return False
        if one.kind == "stop":
            self._stops[process] += 1
            self._later(self._continue(process, one.seconds))
        return True

    async def _continue(self, process: psutil.Process, seconds: float) -> None:
        """Let a process continue after some seconds, unless another stop of it lasts longer."""
        await asyncio.sleep(seconds)
        self._stops[process] -= 1
        if not self._stops[process]:
            del self._stops[process]
            _send(process, signal.SIGCONT)

    def _later(self, action: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(action)
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    def _victim(self, one: Disturbance) -> psutil.Process | None:
        """Return the process to disturb; None: there is none now."""
        if one.target in self._supervisors:
            process = self._supervisors[one.target].process
            found = list(_alive([process.pid] if process.running and process.pid is not None else []))
        else:
            parents = ("scheduler",) if one.target == POLICY else tuple(f"agent-{node}" for node in AGENTS)
            found = sorted(self._children(parents), key=lambda each: each.pid)
        return found[int(one.pick * len(found))] if found else None

    def _children(self, parents: Sequence[str]) -> Iterator[psutil.Process]:
        for name in parents:
            process = self._supervisors[name].process
            for parent in _alive([process.pid] if process.running and process.pid is not None else []):
                with suppress(psutil.NoSuchProcess):
                    yield from parent.children(recursive=True)


def _alive(pids: Sequence[int]) -> Iterator[psutil.Process]:
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            yield psutil.Process(pid)


def _send(process: psutil.Process, number: signal.Signals) -> bool:
    """Send a signal to a process unless it has ended; return whether it was sent."""
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return False
    return True
