"""Calls between services of one process: what can be seen of them is as over the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hopyard.errors import Internal, StaleEpoch, TimedOut, Unavailable
from hopyard.rpc import channel
from hopyard.serving import Server
from hopyard.v1 import appstat_pb2, appstat_pb2_grpc

SERVICE = "hopyard.v1.AppStatService"


class Epochs(appstat_pb2_grpc.AppStatServiceServicer):
    """Fails by the name of the holder; remembers how it was called."""

    def __init__(self) -> None:
        self.contexts: list[Any] = []

    async def BeginEpoch(self, request: appstat_pb2.BeginEpochRequest, context: Any) -> appstat_pb2.BeginEpochResponse:
        self.contexts.append(context)
        if request.holder == "stale":
            raise StaleEpoch("a newer one")
        if request.holder == "bug":
            raise RuntimeError("a mistake")
        if request.holder == "slow":
            await asyncio.Event().wait()
        return appstat_pb2.BeginEpochResponse(epoch=7)


@pytest.fixture
def epochs() -> Epochs:
    return Epochs()  # type: ignore[abstract]


@pytest.fixture
async def server(epochs: Epochs) -> AsyncIterator[Server]:
    server = Server("epochs")
    server.add(appstat_pb2_grpc.add_AppStatServiceServicer_to_server, epochs, SERVICE)
    await server.start()
    yield server
    await server.stop(0)


@pytest.mark.parametrize("local", [True, False])
async def test_answers_errors_and_deadlines_are_the_same(server: Server, epochs: Epochs, local: bool) -> None:
    async with channel(server.address, timeout=20.0, local=local) as opened:
        stub: Any = appstat_pb2_grpc.AppStatServiceStub(opened)

        async def begin(holder: str, **options: Any) -> int:
            response = await stub.BeginEpoch(appstat_pb2.BeginEpochRequest(holder=holder), **options)
            return int(response.epoch)

        assert await begin("me") == 7
        with pytest.raises(StaleEpoch, match="a newer one"):
            await begin("stale")
        with pytest.raises(Internal, match=r"/hopyard.v1.AppStatService/BeginEpoch: unexpected RuntimeError"):
            await begin("bug")
        with pytest.raises(TimedOut):
            await begin("slow", timeout=0.05)
        assert [context is None for context in epochs.contexts] == [local] * 4
        await server.stop(0)
        with pytest.raises(Unavailable):
            await begin("me")


async def test_another_event_loop_takes_the_wire(server: Server, epochs: Epochs) -> None:
    async def call() -> int:
        async with channel(server.address, local=True) as opened:
            stub: Any = appstat_pb2_grpc.AppStatServiceStub(opened)
            return int((await stub.BeginEpoch(appstat_pb2.BeginEpochRequest(holder="me"))).epoch)

    assert await asyncio.to_thread(asyncio.run, call()) == 7
    assert epochs.contexts[0] is not None
