"""A proxy between two services on Unix sockets, with which a test cuts, delays or breaks their connections."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from hopyard._net.rpc.address import SOCKET_SCHEME, socket_file

Direction = Literal["to", "from"]
"""From the clients to the service, or from the service to the clients."""

BOTH: Final[tuple[Direction, ...]] = ("to", "from")
_BYTES: Final = 1 << 16


class SocketProxy:
    """Forwards each connection at its address to a service. Use it as a context manager.

    Its socket is beside the socket of the service, so that clients find the tokens of the service.

    Args:
        service: Address of the service, unix:/PATH.
        name: Name of the file of the socket of the proxy.
    """

    def __init__(self, service: str, name: str) -> None:
        self._target = socket_file(service)
        self._socket = self._target.with_name(name)
        self._open: dict[Direction, asyncio.Event] = {direction: asyncio.Event() for direction in BOTH}
        self._delay = 0.0
        self._connections: dict[asyncio.Task[None], None] = {}
        self._writers: dict[Direction, set[asyncio.StreamWriter]] = {direction: set() for direction in BOTH}
        self.heal()

    @property
    def address(self) -> str:
        """The address of the proxy."""
        return f"{SOCKET_SCHEME}{self._socket}"

    def cut(self, *directions: Direction) -> None:
        """Hold back all bytes in these directions, as a network does that loses all packets. Connections stay open, new ones too."""
        for direction in directions:
            self._open[direction].clear()

    def delay(self, seconds: float) -> None:
        """Hold back each piece of data for `seconds`."""
        self._delay = seconds

    def half_close(self, direction: Direction) -> None:
        """End the stream of bytes of the present connections in a direction; the other direction stays open."""
        for writer in self._writers[direction]:
            with suppress(OSError):
                writer.write_eof()

    def reset(self) -> None:
        """Close all present connections."""
        for connection in list(self._connections):
            connection.cancel()

    def heal(self) -> None:
        """Forward all bytes again, those that were held back first."""
        self._delay = 0.0
        for opened in self._open.values():
            opened.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._accept, self._socket)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.reset()
        await asyncio.gather(*self._connections, return_exceptions=True)
        Path(self._socket).unlink(missing_ok=True)  # noqa: ASYNC240 (one file)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._forward(reader, writer))
        self._connections[connection] = None
        connection.add_done_callback(self._connections.pop)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_unix_connection(self._target)
        except OSError:
            writer.close()
            return
        pumps = [
            asyncio.create_task(self._pump(reader, back, "to")),
            asyncio.create_task(self._pump(there, writer, "from")),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(pumps, timeout=1.0)
        finally:
            for pump in pumps:
                pump.cancel()
            for end in (writer, back):
                end.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction) -> None:
        self._writers[direction].add(writer)
        try:
            with suppress(OSError):
                while data := await reader.read(_BYTES):
                    if self._delay:
                        await asyncio.sleep(self._delay)
                    await self._open[direction].wait()
                    writer.write(data)
                    await writer.drain()
                await self._open[direction].wait()
        finally:
            self._writers[direction].discard(writer)
