"""A proxy between two services that can drop, delay, cut and half-close what passes through it.

It works on streams, not on packets. A dropped packet on a real network is sent again until the connection is given up, so `drop` holds
the data back, in one or both directions. `heal` sends them, or cuts the connection, as a peer does that has given up.

What lasts is an `Effect`. Effects may overlap: the end of one does not end the others.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from hopyard._net.rpc.address import is_socket, socket_file

CHUNK_BYTES: Final = 65536
QUEUED_CHUNKS: Final = 64
"""Number of chunks that a direction of a connection holds back before it stops reading."""


class Direction(StrEnum):
    """Directions of a connection: from the side that connected, or to it."""

    FORWARD = "forward"
    BACKWARD = "backward"
    BOTH = "both"


@dataclass(frozen=True, eq=False, slots=True)
class Effect:
    """What disturbs a link until it is healed.

    Attributes:
        direction: The direction of connections that it disturbs.
        drops: Whether nothing passes.
        delay: Seconds by which everything passes later.
        refuses: Whether new connections are broken.
    """

    direction: Direction
    drops: bool = False
    delay: float = 0.0
    refuses: bool = False


class _Way:
    """One direction of a connection: reads chunks, and writes each one when its delay is over and the gate is open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, settings: _Settings) -> None:
        self._reader = reader
        self._writer = writer
        self._settings = settings
        self._chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(QUEUED_CHUNKS)
        self._closed = False

    async def run(self) -> None:
        """Pass data on until the source ends or the connection breaks. The end of the source is passed on as half-close."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read())
            tasks.create_task(self._write())

    async def _read(self) -> None:
        while True:
            data = await self._reader.read(CHUNK_BYTES)
            await self._chunks.put((asyncio.get_running_loop().time() + self._settings.delay, data))
            if not data:
                return

    async def _write(self) -> None:
        while True:
            due, data = await self._chunks.get()
            if (left := due - asyncio.get_running_loop().time()) > 0:
                await asyncio.sleep(left)
            await self._settings.gate.wait()
            if not data:
                self.close()
                return
            if not self._closed:
                self._writer.write(data)
                await self._writer.drain()

    def close(self) -> None:
        """Tell the destination that nothing more comes in this direction, and discard what still comes."""
        if not self._closed:
            self._closed = True
            with suppress(OSError):
                self._writer.write_eof()


class _Settings:
    """How a direction of all connections passes data: after `delay` seconds, while the gate is open."""

    def __init__(self) -> None:
        self.delay = 0.0
        self.gate = asyncio.Event()
        self.gate.set()


class Proxy:
    """Passes connections on to a service. It is a context manager, and listens from its begin to its end.

    Args:
        target: Address of the service.
        listen: The address on which the proxy listens; port 0: a free one.

    Attributes:
        address: The address for clients, after the proxy has started.
        connections: Number of connections so far.
    """

    def __init__(self, target: str, listen: str) -> None:
        self.target = target
        self.address = listen
        self.connections = 0
        self._settings = {Direction.FORWARD: _Settings(), Direction.BACKWARD: _Settings()}
        self._effects: list[Effect] = []
        self._open: dict[asyncio.Task[None], tuple[list[asyncio.StreamWriter], dict[Direction, _Way]]] = {}
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def listen(self) -> None:
        """Begin to accept connections; `deafen` ends it."""
        if is_socket(self.address):
            self._server = await asyncio.start_unix_server(self._connected, socket_file(self.address))
        else:
            host, _, port = self.address.rpartition(":")
            self._server = await asyncio.start_server(self._connected, host, int(port))
            self.address = f"{host}:{self._server.sockets[0].getsockname()[1]}"

    def deafen(self) -> None:
        """Accept no more connections, and delete the own socket. Safe to call twice."""
        if self._server is not None:
            self._server.close()
            self._server = None
            if is_socket(self.address):
                socket_file(self.address).unlink(missing_ok=True)

    async def interpose(self, address: str) -> None:
        """Move the socket of a running service aside, and listen in its place, so that its address leads to this proxy.

        Call `deafen` before the service starts again.
        """
        file = socket_file(address)
        aside = file.with_name(f"{file.name}.far")
        file.rename(aside)
        self.target, self.address = f"unix:{aside}", address
        await self.listen()

    async def __aexit__(self, *_: object) -> None:
        self.deafen()
        self.heal()
        tasks = list(self._open)
        self.cut()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------------------------------------------------ disturbances

    def drop(self, direction: Direction = Direction.BOTH) -> Effect:
        """Let nothing pass in a direction until `heal`. New connections are accepted, and nothing passes on them either."""
        return self._begin(Effect(direction, drops=True))

    def delay(self, seconds: float, direction: Direction = Direction.BOTH) -> Effect:
        """Let everything pass `seconds` later, in its order, until `heal`. Overlapping delays add up."""
        return self._begin(Effect(direction, delay=seconds))

    def refuse(self) -> Effect:
        """Break all connections, and new ones until `heal`."""
        self.cut()
        return self._begin(Effect(Direction.BOTH, refuses=True))

    def cut(self) -> None:
        """Break all connections. New ones pass."""
        for writers, _ in self._open.values():
            for writer in writers:
                writer.transport.abort()
        for task in list(self._open):
            task.cancel()

    def half_close(self, direction: Direction = Direction.FORWARD) -> None:
        """Tell the receivers of a direction that nothing more comes, and pass on only the other direction of present connections."""
        for _, ways in self._open.values():
            for way, each in ways.items():
                if direction in (way, Direction.BOTH):
                    each.close()

    def heal(self, effect: Effect | None = None) -> None:
        """End an effect, and pass on what it alone has held back. Safe to call twice.

        Args:
            effect: The effect; None: all effects.
        """
        self._effects = [one for one in self._effects if effect not in (None, one)]
        self._apply()

    def _begin(self, effect: Effect) -> Effect:
        self._effects.append(effect)
        self._apply()
        return effect

    def _apply(self) -> None:
        for way, settings in self._settings.items():
            effects = [one for one in self._effects if one.direction in (way, Direction.BOTH)]
            settings.delay = sum(one.delay for one in effects)
            if any(one.drops for one in effects):
                settings.gate.clear()
            else:
                settings.gate.set()

    @property
    def listening(self) -> bool:
        """Whether connections are accepted."""
        return self._server is not None

    @property
    def _refused(self) -> bool:
        return any(one.refuses for one in self._effects)

    # ------------------------------------------------------------------------------------------------------- connections

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a proxy runs in tasks")
        self.connections += 1
        writers = [writer]
        ways: dict[Direction, _Way] = {}
        self._open[task] = writers, ways
        try:
            if self._refused:
                return
            far_reader, far_writer = await self._reached()
            writers.append(far_writer)
            ways[Direction.FORWARD] = _Way(reader, far_writer, self._settings[Direction.FORWARD])
            ways[Direction.BACKWARD] = _Way(far_reader, writer, self._settings[Direction.BACKWARD])
            async with asyncio.TaskGroup() as both:
                for way in ways.values():
                    both.create_task(way.run())
        except OSError:
            pass  # The service is not there: the caller learns it below.
        except ExceptionGroup as errors:
            if errors.split(OSError)[1] is not None:
                raise  # Not only broken connections.
        except asyncio.CancelledError:
            pass  # The connection was cut. Nobody awaits this task for its result.
        finally:
            del self._open[task]
            for each in writers:
                each.transport.abort()

    async def _reached(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if is_socket(self.target):
            return await asyncio.open_unix_connection(socket_file(self.target))
        host, _, port = self.target.rpartition(":")
        return await asyncio.open_connection(host.strip("[]"), int(port))
