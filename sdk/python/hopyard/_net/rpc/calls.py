"""Wrappers of pending gRPC calls that raise `hopyard.errors` instead of gRPC's exception.

gRPC's client interceptors cannot do this: an exception of another class raised in one is reported a second time when
the call is garbage-collected.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any, Final, Generic, NamedTuple, TypeVar

import grpc
import grpc.aio

from hopyard._net.rpc.status_codes import ERROR_KEY, error_from, error_from_rpc
from hopyard.errors import Unavailable

Request = TypeVar("Request")
Response = TypeVar("Response")
T = TypeVar("T")

_STATUS_SECONDS: Final = 1.0
"""Maximum seconds to wait for the server's status after a call failed with a status that gRPC created itself."""


class _Wrapped:
    """Base class of wrapped calls: delegates to gRPC's call and converts its exceptions to `hopyard.errors`."""

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
            raise await self._error(error) from error

    async def _error(self, error: grpc.aio.AioRpcError) -> Exception:
        return error_from_rpc(error)


class _Answered(_Wrapped, Generic[Response]):
    """Mixin for calls with one response, which `await` returns."""

    def __await__(self) -> Generator[None, None, Response]:
        response: Response = yield from self._mapped(self._call).__await__()
        return response


class _Reading(_Wrapped, Generic[Response]):
    """Mixin for calls with a stream of responses, which iteration or `read` returns."""

    async def read(self) -> object | Response:
        response: object | Response = await self._mapped(self._call.read())
        return response

    async def __aiter__(self) -> AsyncIterator[Response]:
        try:
            async for response in self._call:
                yield response
        except grpc.aio.AioRpcError as error:
            raise await self._error(error) from error


class _Writing(_Wrapped, Generic[Request]):
    """Mixin for calls with a stream of requests, which `write` sends.

    If a write fails because the server ended the call, gRPC sets an INTERNAL status itself, before or after it receives
    the status of the server (https://github.com/grpc/grpc/issues/36066). Errors are created from the server's status.
    """

    def __init__(self, call: Any) -> None:
        super().__init__(call)
        self._status: _Status | None = None
        self._received = asyncio.Event()
        call.add_done_callback(self._keep_status)

    def _keep_status(self, call: Any) -> None:
        status = _Status(_result(call.code()), _result(call.details()), _result(call.trailing_metadata()))
        if self._status is None or self._status.unexplained:
            self._status = status
        if not status.unexplained:
            self._received.set()

    async def _error(self, error: grpc.aio.AioRpcError) -> Exception:
        # Not `asyncio.wait_for`: in Python 3.11 it loses a cancellation that comes together with the event.
        with suppress(TimeoutError):
            async with asyncio.timeout(_STATUS_SECONDS):
                await self._received.wait()
        return error_from_rpc(error) if self._status is None else self._status.error()

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
        """Raise the error for the call's final status; do nothing if the status is not known yet or the call was cancelled.

        It replaces gRPC's exception for a failed write, which says only that the call has ended, but not why.
        """
        if self._status is not None and not self._call.cancelled():
            raise self._status.error()


class _Status(NamedTuple):
    """The final status of a call.

    Attributes:
        code: The status code.
        details: The text of the status.
        trailing: The trailing metadata; None: the server sent none.
    """

    code: grpc.StatusCode
    details: str
    trailing: grpc.aio.Metadata | None

    @property
    def name(self) -> str:
        """The name of the error class that a Hopyard service sent in the trailing metadata; empty if it sent none."""
        return str(self.trailing.get(ERROR_KEY, "")) if self.trailing is not None else ""

    @property
    def unexplained(self) -> bool:
        """Whether gRPC may have created the status itself, because it is INTERNAL without an error class.

        Hopyard services send a class name with each INTERNAL error.
        """
        return self.code is grpc.StatusCode.INTERNAL and not self.name

    def error(self) -> Exception:
        """Return the exception for the status; for OK it is `Unavailable`.

        A service that stops ends its streams with OK, so a write that then fails was not delivered.
        """
        if self.code is grpc.StatusCode.OK:
            return Unavailable("the other side ended the call before everything was written")
        return error_from(self.code, self.details, self.name)


def _result(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never suspends, such as `code()` of a call that has ended.

    Raises:
        RuntimeError: The coroutine suspended.
    """
    try:
        coroutine.send(None)
    except StopIteration as finished:
        result: T = finished.value
        return result
    finally:
        coroutine.close()
    raise RuntimeError("the call is not done")


class UnaryUnary(_Answered[Response], grpc.aio.UnaryUnaryCall[Request, Response]):
    """A started call with one request and one response, whose failures raise `hopyard.errors`."""


class UnaryStream(_Reading[Response], grpc.aio.UnaryStreamCall[Request, Response]):
    """A started call with one request and a stream of responses, whose failures raise `hopyard.errors`."""


class StreamUnary(_Writing[Request], _Answered[Response], grpc.aio.StreamUnaryCall[Request, Response]):
    """A started call with a stream of requests and one response, whose failures raise `hopyard.errors`."""


class StreamStream(_Writing[Request], _Reading[Response], grpc.aio.StreamStreamCall[Request, Response]):
    """A started call with a stream of requests and a stream of responses, whose failures raise `hopyard.errors`."""
