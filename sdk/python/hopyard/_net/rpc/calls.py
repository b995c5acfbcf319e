"""Calls in progress that raise `hopyard.errors` instead of gRPC's own exception.

gRPC's client interceptors cannot do this: an exception of another class inside one surfaces a second time when the
call is collected. So each call is wrapped, and everything else is passed on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio

from hopyard._net.rpc.status_codes import ERROR_KEY, error_from, error_from_rpc
from hopyard.errors import Unavailable

Request = TypeVar("Request")
Response = TypeVar("Response")
T = TypeVar("T")


class _Wrapped:
    """What all calls share: status and cancellation, passed on."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def cancelled(self) -> bool:
        return bool(self._call.cancelled())

    def done(self) -> bool:
        return bool(self._call.done())

    def time_remaining(self) -> float | None:
        remaining: float | None = self._call.time_remaining()
        return remaining

    def cancel(self) -> bool:
        return bool(self._call.cancel())

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._call.add_done_callback(callback)

    async def initial_metadata(self) -> grpc.aio.Metadata:
        metadata: grpc.aio.Metadata = await self._mapped(self._call.initial_metadata())
        return metadata

    async def trailing_metadata(self) -> grpc.aio.Metadata:
        metadata: grpc.aio.Metadata = await self._mapped(self._call.trailing_metadata())
        return metadata

    async def code(self) -> grpc.StatusCode:
        code: grpc.StatusCode = await self._call.code()
        return code

    async def details(self) -> str:
        details: str = await self._call.details()
        return details

    async def wait_for_connection(self) -> None:
        await self._mapped(self._call.wait_for_connection())

    async def _mapped(self, awaitable: Awaitable[T]) -> T:
        try:
            return await awaitable
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error) from error


class _Answered(_Wrapped, Generic[Response]):
    """A call with one response."""

    def __await__(self) -> Generator[None, None, Response]:
        response: Response = yield from self._mapped(self._call).__await__()
        return response


class _Reading(_Wrapped, Generic[Response]):
    """A call with a stream of responses."""

    async def read(self) -> object | Response:
        response: object | Response = await self._mapped(self._call.read())
        return response

    async def __aiter__(self) -> AsyncIterator[Response]:
        try:
            async for response in self._call:
                yield response
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error) from error


class _Writing(_Wrapped, Generic[Request]):
    """A call with a stream of requests."""

    async def write(self, request: Request) -> None:
        try:
            await self._mapped(self._call.write(request))
        except asyncio.InvalidStateError as error:
            await self._raise_status()
            raise error

    async def done_writing(self) -> None:
        try:
            await self._mapped(self._call.done_writing())
        except asyncio.InvalidStateError as error:
            await self._raise_status()
            raise error

    async def _raise_status(self) -> None:
        """gRPC says only that a call is over; its status says why.

        A service that stops ends its streams with OK. What was to be written then reached nobody, which is the same to
        the caller as a service that is not reachable.
        """
        if not self._call.done() or self._call.cancelled():
            return
        code = await self._call.code()
        if code is grpc.StatusCode.OK:
            raise Unavailable("the other side ended the call before everything was written")
        trailing = await self._call.trailing_metadata()
        name = trailing.get(ERROR_KEY, "") if trailing is not None else ""
        raise error_from(code, await self._call.details(), str(name))


class UnaryUnary(_Answered[Response], grpc.aio.UnaryUnaryCall[Request, Response]):
    """One request, one response."""


class UnaryStream(_Reading[Response], grpc.aio.UnaryStreamCall[Request, Response]):
    """One request, a stream of responses."""


class StreamUnary(_Writing[Request], _Answered[Response], grpc.aio.StreamUnaryCall[Request, Response]):
    """A stream of requests, one response."""


class StreamStream(_Writing[Request], _Reading[Response], grpc.aio.StreamStreamCall[Request, Response]):
    """Streams both ways."""
