"""Tests that a proxy passes all data on, and that each of its disturbances does what it says, alone and with others."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from disturbance.proxy import Direction, Proxy

from tests.timing import HANG_SECONDS

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Service:
    """A TCP or Unix server that keeps the streams of its connections."""

    def __init__(self) -> None:
        self.accepted: asyncio.Queue[Pair] = asyncio.Queue()

    async def accept(self) -> Pair:
        async with asyncio.timeout(HANG_SECONDS):
            return await self.accepted.get()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted.put_nowait((reader, writer))


@asynccontextmanager
async def proxied() -> AsyncIterator[tuple[Service, Proxy]]:
    service = Service()
    server = await asyncio.start_server(service.connected, "127.0.0.1", 0)
    target = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        async with Proxy(target, "127.0.0.1:0") as proxy:
            yield service, proxy
    finally:
        server.close()
        while not service.accepted.empty():
            service.accepted.get_nowait()[1].close()


async def connect(proxy: Proxy) -> Pair:
    host, _, port = proxy.address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def read(reader: asyncio.StreamReader, size: int) -> bytes:
    async with asyncio.timeout(HANG_SECONDS):
        return await reader.readexactly(size)


async def ends(reader: asyncio.StreamReader) -> bytes:
    """Return what comes until the connection ends or breaks."""
    async with asyncio.timeout(HANG_SECONDS):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


@asynccontextmanager
async def pair(service: Service, proxy: Proxy) -> AsyncIterator[tuple[Pair, Pair]]:
    """Context manager of a connection: the streams of the client and those of the service."""
    near = await connect(proxy)
    far = await service.accept()
    try:
        yield near, far
    finally:
        for _, writer in (near, far):
            writer.close()


async def test_data_pass_in_both_directions_and_an_end_is_passed_on_alone() -> None:
    async with proxied() as (service, proxy), pair(service, proxy) as (near, far):
        near[1].write(b"ask" * 100_000)
        assert await read(far[0], 300_000) == b"ask" * 100_000
        near[1].write_eof()
        assert await ends(far[0]) == b""
        far[1].write(b"answer")
        assert await read(near[0], 6) == b"answer"
        assert proxy.connections == 1


async def test_dropped_data_come_when_the_link_heals() -> None:
    async with proxied() as (service, proxy), pair(service, proxy) as (near, far):
        proxy.drop(Direction.FORWARD)
        near[1].write(b"one")
        far[1].write(b"other")
        assert await read(near[0], 5) == b"other", "the other direction is not disturbed"
        near[1].write(b"two")
        held = asyncio.create_task(read(far[0], 6))
        far[1].write(b"again")
        assert await read(near[0], 5) == b"again"
        assert not held.done()
        proxy.heal()
        assert await held == b"onetwo"


async def test_a_drop_can_end_with_a_cut() -> None:
    async with proxied() as (service, proxy), pair(service, proxy) as (near, far):
        proxy.drop()
        near[1].write(b"lost")
        proxy.cut()
        proxy.heal()
        assert await ends(near[0]) == b""
        assert await ends(far[0]) == b""
        async with pair(service, proxy) as (later, farther):
            later[1].write(b"new")
            assert await read(farther[0], 3) == b"new"


async def test_delayed_data_keep_their_order() -> None:
    async with proxied() as (service, proxy), pair(service, proxy) as (near, far):
        began = asyncio.get_running_loop().time()
        proxy.delay(0.05, Direction.FORWARD)
        for number in range(5):
            near[1].write(bytes([number]))
            await near[1].drain()
        assert await read(far[0], 5) == bytes(range(5))
        assert asyncio.get_running_loop().time() - began >= 0.05
        proxy.heal()
        near[1].write(b"x")
        assert await read(far[0], 1) == b"x"


async def test_a_cut_link_refuses_until_it_heals() -> None:
    async with proxied() as (service, proxy), pair(service, proxy) as (near, far):
        proxy.refuse()
        assert await ends(near[0]) == b""
        assert await ends(far[0]) == b""
        refused = await connect(proxy)
        assert await ends(refused[0]) == b""
        refused[1].close()
        assert service.accepted.empty()
        proxy.heal()
        async with pair(service, proxy) as (later, farther):
            later[1].write(b"new")
            assert await read(farther[0], 3) == b"new"


async def test_a_drop_lasts_until_the_last_of_two_that_overlap_ends() -> None:
    async with proxied() as (service, proxy), pair(service, proxy) as (near, far):
        short, long = proxy.drop(), proxy.drop(Direction.FORWARD)
        near[1].write(b"held")
        far[1].write(b"free")
        held = asyncio.create_task(read(far[0], 4))
        proxy.heal(short)
        assert await read(near[0], 4) == b"free", "only the other drop holds this direction back"
        assert not held.done()
        proxy.heal(short)  # Its end happens once.
        assert not held.done()
        proxy.heal(long)
        assert await held == b"held"


async def test_the_end_of_another_disturbance_does_not_end_a_refusal_or_a_delay() -> None:
    async with proxied() as (service, proxy):
        refusal, drop, delay = proxy.refuse(), proxy.drop(), proxy.delay(0.05, Direction.FORWARD)
        proxy.cut()  # as at the end of a drop that breaks connections
        proxy.heal(drop)
        refused = await connect(proxy)
        assert await ends(refused[0]) == b""
        refused[1].close()
        proxy.heal(refusal)
        async with pair(service, proxy) as (near, far):
            began = asyncio.get_running_loop().time()
            near[1].write(b"late")
            assert await read(far[0], 4) == b"late"
            assert asyncio.get_running_loop().time() - began >= 0.05
            proxy.heal(delay)


@pytest.mark.parametrize("direction", [Direction.FORWARD, Direction.BACKWARD])
async def test_a_half_closed_connection_passes_one_direction_only(direction: Direction) -> None:
    async with proxied() as (service, proxy), pair(service, proxy) as (near, far):
        near[1].write(b"begin")
        assert await read(far[0], 5) == b"begin"
        proxy.half_close(direction)
        closed, open_ = (near, far) if direction is Direction.FORWARD else (far, near)
        assert await ends(open_[0]) == b""
        closed[1].write(b"discarded")
        open_[1].write(b"passed")
        assert await read(closed[0], 6) == b"passed"


async def test_a_connection_to_a_service_that_is_not_there_breaks(tmp_path: Path) -> None:
    async with Proxy(f"unix:{tmp_path}/absent", "127.0.0.1:0") as proxy:
        near = await connect(proxy)
        assert await ends(near[0]) == b""
        near[1].close()


async def test_a_proxy_takes_the_place_of_a_socket_and_gives_it_back() -> None:
    with tempfile.TemporaryDirectory(prefix="px-") as folder:  # The path of a socket is short.
        service, address = Service(), f"unix:{folder}/agent.sock"
        proxy = Proxy("", "")
        for begin in (b"first", b"again"):
            proxy.deafen()
            server = await asyncio.start_unix_server(service.connected, f"{folder}/agent.sock")
            await proxy.interpose(address)
            near = await asyncio.open_unix_connection(f"{folder}/agent.sock")
            far = await service.accept()
            near[1].write(begin)
            assert await read(far[0], 5) == begin
            proxy.cut()
            assert await ends(near[0]) == b""
            for _, writer in (near, far):
                writer.close()
            server.close()
        await proxy.__aexit__()
        assert proxy.connections == 2
