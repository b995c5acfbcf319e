"""Calls to servicers in the same process: generated stubs work without a server, and what is not implemented is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from hopyard._net.rpc.servicer_channel import ServicerChannel
from hopyard.errors import Conflict, NotFound
from hopyard.v1 import appstat_pb2 as pb
from hopyard.v1.appstat_pb2_grpc import (
    AppStatServiceServicer,
    AppStatServiceStub,
    add_AppStatServiceServicer_to_server,
)

pytestmark = pytest.mark.quick


class Queries(AppStatServiceServicer):
    async def ListStreams(self, request: pb.ListStreamsRequest, context: Any) -> pb.ListStreamsResponse:
        if request.page_token:
            raise NotFound("no such page")
        return pb.ListStreamsResponse(next_page_token=str(request.page_size))

    async def GetBlob(self, request: pb.GetBlobRequest, context: Any) -> AsyncIterator[pb.GetBlobResponse]:
        for data in (b"one", b"two"):
            yield pb.GetBlobResponse(data=data)


@pytest.fixture
def stub() -> Any:
    channel: Any = ServicerChannel("no cluster runs")
    add_AppStatServiceServicer_to_server(Queries(), channel)  # type: ignore[abstract]  # the others are refused
    return AppStatServiceStub(channel)


async def test_a_call_reaches_the_servicer_and_its_error_the_caller(stub: Any) -> None:
    answer = await stub.ListStreams(pb.ListStreamsRequest(page_size=7), timeout=1.0)
    assert answer.next_page_token == "7"
    with pytest.raises(NotFound, match="no such page"):
        await stub.ListStreams(pb.ListStreamsRequest(page_token="x"))


async def test_a_stream_of_responses_is_iterated(stub: Any) -> None:
    found = [part.data async for part in stub.GetBlob(pb.GetBlobRequest(), timeout=1.0)]
    assert found == [b"one", b"two"]


async def test_methods_that_no_servicer_implements_are_refused(stub: Any) -> None:
    with pytest.raises(Conflict, match="no cluster runs"):
        await stub.BeginEpoch(pb.BeginEpochRequest())
    with pytest.raises(Conflict, match="no cluster runs"):
        [part async for part in stub.WatchStatistics(pb.WatchStatisticsRequest())]
    with pytest.raises(Conflict, match="no cluster runs"):
        stub.PutBlob(iter(()))
