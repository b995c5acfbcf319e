"""A server interceptor that converts exceptions of handlers to gRPC statuses."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, NoReturn

import grpc
import grpc.aio

from hopyard._net.rpc.status_codes import ERROR_KEY, code_of, message_of, name_of
from hopyard.errors import HopyardError, InvalidInput

_log = logging.getLogger(__name__)

_Handler = Callable[[Any, Any], Any]


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Ends a call with a gRPC status if its handler raised an exception.

    A `HopyardError` becomes its status, any other exception becomes INTERNAL and is logged with its traceback. A request whose bytes
    are not a message of its type becomes INVALID_ARGUMENT, and is logged in one line. All four kinds of calls are handled. Handlers
    are coroutine functions, or async generator functions for streamed responses. A generator is closed when its call ends, so that
    its `finally` blocks run then.
    """

    def __init__(self) -> None:
        self._wrapped: dict[str, tuple[Any, Any]] = {}
        """gRPC's handler and the wrapped one, by method."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the handler of a method, wrapped to convert exceptions; None if the server has no such method.

        Args:
            continuation: gRPC's function that returns the handler for call details.
            handler_call_details: Names the method.
        """
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = str(handler_call_details.method)
        original, wrapped = self._wrapped.get(method, (None, None))
        if original is not handler:
            wrapped = _wrapped(handler, method)
            self._wrapped[method] = handler, wrapped
        return wrapped


def _wrapped(handler: Any, method: str) -> Any:
    """Return a handler that converts the exceptions of `handler`."""
    kinds: tuple[tuple[_Handler | None, Callable[..., Any]], ...] = (
        (handler.unary_unary, grpc.unary_unary_rpc_method_handler),
        (handler.unary_stream, grpc.unary_stream_rpc_method_handler),
        (handler.stream_unary, grpc.stream_unary_rpc_method_handler),
        (handler.stream_stream, grpc.stream_stream_rpc_method_handler),
    )
    for behaviour, make in kinds:
        if behaviour is not None:
            checked = _with_decoded_requests(behaviour, method, streaming=bool(handler.request_streaming))
            generates = inspect.isasyncgenfunction(behaviour)
            responding = _streaming(checked, method, generates=generates)
            return make(
                responding if handler.response_streaming else _single(checked, method),
                request_deserializer=_tolerant(handler.request_deserializer),
                response_serializer=handler.response_serializer,
            )
    raise AssertionError(f"handler of {method} handles nothing")


class _Undecodable:
    """Stands for a request that could not be decoded.

    Args:
        error: Why.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    def refusal(self, method: str) -> InvalidInput:
        """Log that a request of `method` could not be decoded, and return the error for its client."""
        error = InvalidInput(f"{method}: the request cannot be decoded: {self._error!s:.200}")
        _log.warning("%s", error)
        return error


class _DecodedRequests:
    """The requests of a stream; iteration raises InvalidInput for a request that could not be decoded.

    Args:
        requests: The requests, with `_Undecodable` in place of some.
        method: Name of the method.
    """

    def __init__(self, requests: AsyncIterable[Any], method: str) -> None:
        # The iterator of gRPC is created by the first use: one that is never used is reported when it is deleted.
        self._requests = requests
        self._iterator: AsyncIterator[Any] | None = None
        self._method = method

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        if self._iterator is None:
            self._iterator = aiter(self._requests)
        request = await anext(self._iterator)
        if isinstance(request, _Undecodable):
            raise request.refusal(self._method)
        return request


def _tolerant(deserialize: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    """Return a deserializer that returns `_Undecodable` instead of raising an error, which gRPC would report as UNKNOWN."""
    if deserialize is None:
        return None

    def decoded(data: bytes) -> Any:
        try:
            return deserialize(data)
        except Exception as error:  # noqa: BLE001
            return _Undecodable(error)

    return decoded


def _with_decoded_requests(behaviour: _Handler, method: str, *, streaming: bool) -> _Handler:
    """Return a handler that receives only decoded requests, and raises InvalidInput for others."""

    def handle(request: Any, context: Any) -> Any:
        if isinstance(request, _Undecodable):
            raise request.refusal(method)
        return behaviour(_DecodedRequests(request, method) if streaming else request, context)

    return handle


def _single(behaviour: _Handler, method: str) -> _Handler:
    async def handle(request: Any, context: Any) -> Any:
        try:
            return await behaviour(request, context)
        except grpc.aio.AbortError:
            raise  # The handler has set the status.
        except Exception as error:  # noqa: BLE001
            await _abort(error, method, context)

    return handle


def _streaming(behaviour: _Handler, method: str, *, generates: bool) -> _Handler:
    # A coroutine that writes instead of a generator: gRPC does not close a generator when its call ends.
    async def handle(request: Any, context: Any) -> None:
        try:
            # gRPC would send the headers with the first response. If a handler cancels this write, gRPC sends them again with the
            # status, its core refuses that, and the call never ends.
            await context.send_initial_metadata(())
            if generates:
                responses: AsyncIterator[Any]
                async with aclosing(behaviour(request, context)) as responses:
                    async for response in responses:
                        await context.write(response)
            else:
                await behaviour(request, context)
        except grpc.aio.AbortError:
            raise  # The handler has set the status.
        except Exception as error:  # noqa: BLE001
            await _abort(error, method, context)

    return handle


async def _abort(error: Exception, method: str, context: Any) -> NoReturn:
    if isinstance(error, HopyardError):
        trailing = ((ERROR_KEY, name_of(error)),)
        await context.abort(code_of(error), message_of(error), trailing_metadata=trailing)
    if context.cancelled() or isinstance(
        error, grpc.aio.InternalError
    ):  # gRPC raises the latter for a write to a client that is gone.
        _log.debug("%s: the client has left: %s", method, error)
    else:
        _log.error("%s: unexpected %s", method, type(error).__name__, exc_info=error)
    message = f"{method}: unexpected {type(error).__name__}; the service's log has the traceback"
    await context.abort(grpc.StatusCode.INTERNAL, message, trailing_metadata=((ERROR_KEY, "Internal"),))
    raise AssertionError("abort always raises") from error
