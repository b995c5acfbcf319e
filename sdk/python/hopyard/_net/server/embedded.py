"""`python -m hopyard._net.server.embedded --data DIR`: a cluster's AppStat, generators and scheduler in one process.

DIR is the folder for the cluster's data. The services serve gRPC on Unix sockets as in a distributed cluster. Only calls with
one request and one response between them bypass the network (`hopyard._net.rpc.in_process`). The services are found by the
entry-point group `hopyard.services` and not imported here.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any, Final, Protocol

from hopyard._common.plugins import load_plugin
from hopyard._common.private_files import make_private_folder
from hopyard._net.rpc.in_process import nearby
from hopyard._net.server.main_loop import run_service

SERVICES: Final = "hopyard.services"

SYNCHRONOUS: Final = ("normal", "full")
"""When SQLite waits for the disk: "normal" survives the death of any process, "full" also a power failure."""


class EmbeddedService(Protocol):
    """The interface of the services that an embedded cluster runs: AppStat, generators and scheduler."""

    async def start(self) -> str:
        """Start to listen, and return the address."""

    async def wait(self, stop: asyncio.Event) -> None:
        """Wait until `stop` is set, or raise the error of the service as soon as it fails."""

    async def stop(self) -> None:
        """Refuse new calls, end pending ones, and free the service's resources; safe to call twice."""


class Embedded:
    """AppStat, generators and scheduler of one cluster in this process, started in the order of their dependencies, stopped in reverse.

    Args:
        data: The cluster's directory; created if missing.
        lease_seconds: Lease of agents, passed to the scheduler: seconds after which a silent agent loses its runs.
        heartbeat_seconds: Seconds between messages of an agent, passed to the scheduler.
        synchronous: When SQLite waits for the disk, "normal" or "full" (the pragma `synchronous`); passed to AppStat.
    """

    def __init__(
        self, data: Path, *, lease_seconds: float, heartbeat_seconds: float, synchronous: str = "normal"
    ) -> None:
        self._data = data
        self._synchronous = synchronous
        self._timing = {"lease_seconds": lease_seconds, "heartbeat_seconds": heartbeat_seconds}
        self._running: list[EmbeddedService] = []

    async def start(self) -> str:
        """Start all services, and return the scheduler's address.

        If a service fails to start, its error is raised, and the caller must still call `stop`.
        """
        make_private_folder(self._data)
        with nearby():
            appstat = await self._start("appstat", synchronous=self._synchronous)
            hpgen = await self._start("hpgen")
            return await self._start("scheduler", appstat=appstat, hpgen=hpgen, **self._timing)

    async def _start(self, name: str, **settings: Any) -> str:
        factory: Any = load_plugin(SERVICES, name)
        service: EmbeddedService = factory(data=self._data, **settings)
        self._running.append(service)
        return await service.start()

    async def wait(self, stop: asyncio.Event) -> None:
        """Wait until `stop` is set, or raise the error of a service as soon as one fails."""
        waits = [asyncio.create_task(service.wait(stop)) for service in self._running]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        for wait in done:
            wait.result()

    async def stop(self) -> None:
        """Stop all services, the scheduler first; then raise the first error, if any."""
        failures: list[Exception] = []
        while self._running:
            try:
                await self._running.pop().stop()
            except Exception as error:  # noqa: BLE001 - the other services must still be stopped
                failures.append(error)
        if failures:
            raise failures[0]


def main() -> int:
    """Run the services of an embedded cluster until a signal stops them, and return the exit code.

    0: SIGTERM stopped them. 1: a service failed. 2: wrong usage: an argument is invalid, or a service raised `InvalidInput`. 130:
    SIGINT stopped them.
    """
    parser = argparse.ArgumentParser(prog="python -m hopyard._net.server.embedded", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the cluster's directory")
    parser.add_argument("--lease", type=float, default=10.0, help="seconds after which a silent agent loses its runs")
    parser.add_argument("--heartbeat", type=float, default=1.0, help="seconds between signs of life")
    parser.add_argument("--synchronous", choices=SYNCHRONOUS, default="normal", help="when SQLite waits for the disk")
    arguments = parser.parse_args()

    async def serve(stop: asyncio.Event) -> None:
        embedded = Embedded(
            arguments.data,
            lease_seconds=arguments.lease,
            heartbeat_seconds=arguments.heartbeat,
            synchronous=arguments.synchronous,
        )
        try:
            await embedded.start()
            await embedded.wait(stop)
        finally:
            await embedded.stop()

    return run_service(serve, name="embedded")


if __name__ == "__main__":
    sys.exit(main())
