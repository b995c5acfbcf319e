"""Tests that direct calls between services of one event loop behave as calls over gRPC."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from hopyard import errors
from hopyard._net.rpc.in_process import nearby
from hopyard._net.server import Server
from tests.access import channel_as, permitted
from tests.timing import HANG_SECONDS

SERVICE = "test.Near"


class Kit:
    """A service whose method does what its request says; `direct` records whether each call was direct."""

    def __init__(self) -> None:
        self.direct: list[bool] = []
        self.entered = asyncio.Event()
        self.let_go = asyncio.Event()
        self.cancelled = False

    async def one(self, request: bytes, context: Any) -> bytes:
        self.direct.append(context is None)
        match request:
            case b"stale":
                raise errors.StaleEpoch("epoch 1 is over")
            case b"long":
                raise errors.InvalidInput("x" * 100_000)
            case b"bug":
                raise KeyError("secret")
            case b"hang":
                self.entered.set()
                try:
                    await self.let_go.wait()
                except asyncio.CancelledError:
                    self.cancelled = True
                    raise
        return request


def register(kit: Kit, server: grpc.aio.Server) -> None:
    handlers: dict[str, Any] = {"One": grpc.unary_unary_rpc_method_handler(kit.one)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_registered_method_handlers(SERVICE, handlers)


async def started(kit: Kit, near: bool) -> Server:
    server = Server("near", permissions=permitted(SERVICE, "One"))
    server.add(register, kit, SERVICE)
    if near:
        with nearby():
            await server.start()
    else:
        await server.start()
    return server


@pytest.mark.parametrize("near", [True, False])
async def test_a_call_shows_the_same_either_way(near: bool) -> None:
    kit = Kit()
    server = await started(kit, near)
    async with channel_as("user", server.address) as connection:
        one = connection.unary_unary(f"/{SERVICE}/One")

        assert await one(b"good") == b"good"
        with pytest.raises(errors.StaleEpoch, match="epoch 1 is over"):
            await one(b"stale")
        with pytest.raises(errors.InvalidInput) as long:
            await one(b"long")
        assert len(str(long.value)) < 5000
        with pytest.raises(errors.Internal, match="unexpected KeyError; the service's log has the traceback"):
            await one(b"bug")
        with pytest.raises(errors.TimedOut):
            await one(b"hang", timeout=0.05)
        # The last call may reach its time limit before the handler receives it.
        assert kit.direct[:4] == [near] * 4
        assert set(kit.direct) == {near}
    await server.stop(0)


async def test_a_caller_that_is_cancelled_cancels_the_handler() -> None:
    kit = Kit()
    server = await started(kit, near=True)
    async with channel_as("user", server.address) as connection:
        one = connection.unary_unary(f"/{SERVICE}/One")
        waiting = asyncio.ensure_future(one(b"hang"))
        await kit.entered.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert kit.cancelled
    await server.stop(0)


async def test_a_stop_waits_for_calls_under_way_and_takes_no_more() -> None:
    kit = Kit()
    server = await started(kit, near=True)
    async with channel_as("user", server.address) as connection:
        one = connection.unary_unary(f"/{SERVICE}/One")
        waiting = asyncio.ensure_future(one(b"hang"))
        await kit.entered.wait()
        stopping = asyncio.create_task(server.stop(HANG_SECONDS))
        await server.stopping.wait()
        assert not waiting.done()
        kit.let_go.set()
        assert await waiting == b"hang"
        await stopping
        with pytest.raises(errors.Unavailable):
            await one(b"good")


async def test_another_event_loop_comes_by_the_socket() -> None:
    kit = Kit()
    server = await started(kit, near=True)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def call() -> None:
        async with channel_as("user", server.address) as connection:
            one = connection.unary_unary(f"/{SERVICE}/One")
            await one(b"good")

    def elsewhere(loop: asyncio.AbstractEventLoop, finish: Callable[[None], None]) -> None:
        asyncio.run(call())
        loop.call_soon_threadsafe(finish, None)

    thread = threading.Thread(target=elsewhere, args=(asyncio.get_running_loop(), done.set_result))
    thread.start()
    await done
    thread.join()
    assert kit.direct == [False]
    await server.stop(0)
