"""The hyperparameter generator service as an object that a program can start and stop."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hopyard._net.rpc import MAX_MESSAGE_BYTES
from hopyard._net.server import DEFAULT_GRACE_SECONDS, Server
from hopyard._runtime.processes.process_limits import DEFAULT_MEMORY_BYTES, ResourceLimits
from hopyard.v1.hpgen_pb2_grpc import add_HyperparameterGeneratorServiceServicer_to_server
from hopyard_hpgen.host import DEFAULT_SECONDS, GeneratorHost
from hopyard_hpgen.servicer import SERVICE, HpgenServicer


class HpgenService:
    """The hyperparameter generator service, in its own process or embedded with other services in one event loop.

    It stores nothing on disk: its caller records the calls and opens generators with them.

    Args:
        host: Address of a TCP port to listen on, which requires `insecure`; None: a Unix socket in `data`.
        port: TCP port to listen on; 0: any free port.
        data: Folder for the address file `hpgen.address`; None: no file.
        insecure: Whether to allow TCP without encryption.
        seconds: Time limit in seconds for a call of a generator.
        generator_memory: Maximum physical memory in bytes of a process with a generator, with its child processes; 0: no limit.

    Raises:
        Conflict: `host` is given without `insecure`.
    """

    def __init__(
        self,
        *,
        host: str | None = None,
        port: int = 0,
        data: Path | None = None,
        insecure: bool = False,
        seconds: float = DEFAULT_SECONDS,
        generator_memory: int = DEFAULT_MEMORY_BYTES,
    ) -> None:
        self._server = Server(
            "hpgen", host=host, port=port, data=data, insecure=insecure, request_bytes=MAX_MESSAGE_BYTES
        )
        self._generators = GeneratorHost(seconds, ResourceLimits(generator_memory))
        servicer = HpgenServicer(self._generators)
        self._server.add(add_HyperparameterGeneratorServiceServicer_to_server, servicer, SERVICE)

    @property
    def address(self) -> str:
        """The address on which the service listens, unix:/PATH or HOST:PORT; empty before `start`."""
        return self._server.address

    async def start(self) -> str:
        """Start listening, and return the address. Raise Conflict if it cannot listen there."""
        return await self._server.start()

    async def stop(self, grace: float | None = DEFAULT_GRACE_SECONDS) -> None:
        """Refuse new calls, wait up to `grace` seconds for running ones (None: without limit), then cancel them. Safe to call twice."""
        await self._server.stop(grace)
        await self._generators.close()

    async def wait(self, stop: asyncio.Event) -> None:
        """Wait until the event `stop` is set."""
        await stop.wait()

    async def run(self, stop: asyncio.Event) -> None:
        """Start the service, serve until the event `stop` is set, then stop it."""
        await self.start()
        try:
            await self.wait(stop)
        finally:
            await self.stop()
