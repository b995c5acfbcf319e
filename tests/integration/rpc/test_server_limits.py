"""Tests of what a server allows a peer that it does not trust: compressed and large messages, pings, half-open connections."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from hopyard import errors
from hopyard._net.rpc import channel
from hopyard._net.rpc.options import CHANNEL_OPTIONS, KEEPALIVE_MS, REQUEST_BYTES, server_options
from hopyard._net.server import Server
from tests.access import AcceptEveryone
from tests.timing import HANG_SECONDS

MIB = 2**20
BOMB_BYTES = 300 * MIB
"""With compression allowed, the server decompresses them, less than 1 MB on the wire, before it checks the size."""

CHECK = "/grpc.health.v1.Health/Check"


class Attacked:
    """A server in another process."""

    def __init__(self, process: asyncio.subprocess.Process, address: str) -> None:
        self._process = process
        self.address = address

    async def growth(self) -> int:
        """Return by how many bytes the peak of the server's resident memory has grown since its start."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        return int(await self._process.stdout.readline())


@asynccontextmanager
async def attacked() -> AsyncIterator[Attacked]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.rpc.attacked_server", stdin=pipe, stdout=pipe
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Attacked(process, (await process.stdout.readline()).decode().strip())
    finally:
        process.stdin.close()
        await process.wait()


async def test_a_compression_bomb_is_refused_without_being_decompressed() -> None:
    async with (
        attacked() as server,
        grpc.aio.insecure_channel(server.address, [("grpc.max_send_message_length", -1)]) as opened,
    ):
        call: Any = opened.unary_unary(CHECK)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call(bytes(BOMB_BYTES), compression=grpc.Compression.Gzip, timeout=HANG_SECONDS)
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert await server.growth() < 32 * MIB


async def _read(stream: AsyncIterator[object]) -> list[object]:
    return [message async for message in stream]


async def test_a_client_that_pings_every_second_is_disconnected() -> None:
    server = Server("kit")
    options = {
        "grpc.keepalive_time_ms": 1_000,
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.http2.max_pings_without_data": 0,
        "grpc.http2.ping_timeout_ms": 60_000,
    }
    async with grpc.aio.insecure_channel(await server.start(), tuple(options.items())) as opened:
        watch = health_pb2_grpc.HealthStub(opened).Watch(health_pb2.HealthCheckRequest())
        async with asyncio.timeout(HANG_SECONDS):
            with pytest.raises(grpc.aio.AioRpcError, match="Too many pings") as raised:
                await _read(watch)
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    await server.stop(0)


@pytest.mark.quick
def test_clients_of_hopyard_ping_less_often_than_servers_allow() -> None:
    allowed = server_options()["grpc.http2.min_ping_interval_without_data_ms"]
    assert CHANNEL_OPTIONS["grpc.keepalive_time_ms"] == KEEPALIVE_MS >= 2 * allowed
    assert server_options()["grpc.http2.max_ping_strikes"] == 2


@pytest.mark.parametrize(("limit", "fits"), [(REQUEST_BYTES, True), (MIB, False)])
async def test_the_size_of_requests_is_limited_for_each_server(limit: int, fits: bool) -> None:
    server = Server("kit", request_bytes=limit)
    async with channel(await server.start(), token=None) as opened:
        call = opened.unary_unary(CHECK)
        with pytest.raises(errors.NotFound if fits else errors.Exhausted):
            await call(health_pb2.HealthCheckRequest(service="x" * (2 * MIB)).SerializeToString())
    await server.stop(0)


async def test_long_headers_are_refused() -> None:
    server = Server("kit")
    async with channel(await server.start(), token=None) as opened:
        with pytest.raises(errors.Exhausted, match="metadata"):
            await opened.unary_unary(CHECK)(b"", metadata=(("x", "y" * 70_000),))
        assert await opened.unary_unary(CHECK)(b"", metadata=(("x", "y" * 8_000),))
    await server.stop(0)


async def test_further_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hopyard._net.rpc.options.MAX_CONNECTIONS", 2)
    server = Server("kit", host="127.0.0.1", insecure=True, authenticator=AcceptEveryone())
    host, _, port = (await server.start()).rpartition(":")
    opened = [socket.create_connection((host, int(port))) for _ in range(4)]
    for one in opened:
        one.setblocking(False)
    loop = asyncio.get_running_loop()

    async def is_open(one: socket.socket) -> bool:
        try:
            async with asyncio.timeout(2):
                return bool(
                    await loop.sock_recv(one, 10)
                )  # An open connection receives the server's settings, or nothing.
        except TimeoutError:
            return True
        except ConnectionError:
            return False

    assert sum([await is_open(one) for one in opened]) == 2
    for one in opened:
        one.close()
    await server.stop(0)


async def test_a_connection_without_a_handshake_is_closed() -> None:
    server = Server("kit", host="127.0.0.1", insecure=True, authenticator=AcceptEveryone())
    host, _, port = (await server.start()).rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    async with asyncio.timeout(HANG_SECONDS):
        await reader.read()  # Ends when the server closes the connection.
    writer.close()
    await server.stop(0)
