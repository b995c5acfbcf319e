"""`python -m hopyard._net.server.embedded --data DIR`: AppStat, generators and scheduler in one process, for one directory.

They still speak by their contracts and serve gRPC on loopback, so an embedded cluster is the same cluster; only calls with one
request and one response between them go without a socket (`hopyard._net.rpc.in_process`). The services are found by the entry-point
group `hopyard.services`: nothing here imports them.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any, Final, Protocol

from hopyard._common.plugins import load_plugin
from hopyard._net.rpc.in_process import nearby
from hopyard._net.server.main_loop import run_service

SERVICES: Final = "hopyard.services"

SYNCHRONOUS: Final = ("normal", "full")
"""When SQLite waits for the disk: what was committed survives the death of any process, or a power failure too."""


class EmbeddedService(Protocol):
    """What a service's class offers to whoever runs it."""

    async def start(self) -> str:
        """Listens; answers the address."""

    async def wait(self, stop: asyncio.Event) -> None:
        """Until `stop` is set; raises what ended the service before."""

    async def stop(self) -> None:
        """Stops in order; safe twice."""


class Embedded:
    """The three services of a directory, started in the order in which they need each other and stopped in the reverse.

    Args:
        data: The directory.
        lease_seconds: Passed to the scheduler.
        heartbeat_seconds: Passed to the scheduler.
        synchronous: Passed to AppStat: when SQLite waits for the disk, one of `SYNCHRONOUS`.
    """

    def __init__(
        self, data: Path, *, lease_seconds: float, heartbeat_seconds: float, synchronous: str = "normal"
    ) -> None:
        self._data = data
        self._synchronous = synchronous
        self._timing = {"lease_seconds": lease_seconds, "heartbeat_seconds": heartbeat_seconds}
        self._running: list[EmbeddedService] = []

    async def start(self) -> str:
        """Starts all; answers the scheduler's address."""
        self._data.mkdir(parents=True, exist_ok=True)
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
        """Until `stop` is set, or one of the services ends by a failure, which is raised."""
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
        """Stops all, the scheduler first."""
        failures: list[Exception] = []
        while self._running:
            try:
                await self._running.pop().stop()
            except Exception as error:  # noqa: BLE001 - the others must be stopped all the same
                failures.append(error)
        if failures:
            raise failures[0]


def main() -> int:
    """Runs an embedded cluster's services until told to stop; answers the exit code."""
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
