"""The service: start it, use its address, stop it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hopyard._net.server import DEFAULT_GRACE_SECONDS, Server
from hopyard.v1.hpgen_pb2_grpc import add_HyperparameterGeneratorServiceServicer_to_server
from hopyard_hpgen.host import DEFAULT_SECONDS, GeneratorHost
from hopyard_hpgen.servicer import SERVICE, HpgenServicer


class HpgenService:
    """The hyperparameter generator service, in its own process or embedded with other services in one event loop.

    It stores nothing on disk: its caller records the calls and opens generators with them.

    Args:
        host: The host to listen on; beyond loopback only with `insecure`.
        port: The port; 0: any free port.
        data: Folder for the address file `hpgen.address`; None: no file.
        insecure: Listen beyond this computer without encryption.
        seconds: Time limit for a call of a generator.

    Raises:
        Conflict: The host is not loopback and `insecure` is False.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        data: Path | None = None,
        insecure: bool = False,
        seconds: float = DEFAULT_SECONDS,
    ) -> None:
        self._server = Server("hpgen", host=host, port=port, data=data, insecure=insecure)
        self._generators = GeneratorHost(seconds)
        servicer = HpgenServicer(self._generators)
        self._server.add(add_HyperparameterGeneratorServiceServicer_to_server, servicer, SERVICE)

    @property
    def address(self) -> str:
        """HOST:PORT; empty before `start`."""
        return self._server.address

    async def start(self) -> str:
        """Start listening; return the address. Raises Conflict if that is impossible."""
        return await self._server.start()

    async def stop(self, grace: float | None = DEFAULT_GRACE_SECONDS) -> None:
        """Refuse new calls, wait `grace` seconds for running ones, then give them up. Safe to call twice."""
        await self._server.stop(grace)
        await self._generators.close()

    async def wait(self, stop: asyncio.Event) -> None:
        """Wait until `stop` is set."""
        await stop.wait()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        await self.start()
        try:
            await self.wait(stop)
        finally:
            await self.stop()
