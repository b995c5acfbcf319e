"""Tests of calls in progress, with a controlled order of their events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from hopyard._net.rpc import calls
from hopyard.errors import Unavailable

pytestmark = pytest.mark.quick


class Refused:
    """A call that the server ends with UNAVAILABLE."""

    def __init__(self) -> None:
        self.ended: Callable[[Any], None] = lambda call: None

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self.ended = callback

    def cancelled(self) -> bool:
        return False

    async def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    async def details(self) -> str:
        return "connection refused"

    async def trailing_metadata(self) -> grpc.aio.Metadata:
        return grpc.aio.Metadata()

    async def write(self, request: bytes) -> None:
        raise grpc.aio.AioRpcError(
            grpc.StatusCode.INTERNAL, grpc.aio.Metadata(), grpc.aio.Metadata(), "failed to write"
        )


async def test_a_failed_write_raises_the_status_of_the_other_side() -> None:
    refused = Refused()
    call: calls.StreamStream[bytes, bytes] = calls.StreamStream(refused)
    writing = asyncio.create_task(call.write(b""))
    await asyncio.sleep(0)
    refused.ended(refused)
    with pytest.raises(Unavailable, match="connection refused"):
        await writing


async def test_a_cancellation_is_not_lost_when_the_status_arrives_with_it() -> None:
    refused = Refused()
    call: calls.StreamStream[bytes, bytes] = calls.StreamStream(refused)
    writing = asyncio.create_task(call.write(b""))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    refused.ended(refused)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
