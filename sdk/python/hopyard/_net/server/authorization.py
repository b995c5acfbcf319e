"""A server interceptor that refuses calls which their callers may not make."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
import grpc.aio

from hopyard._net.auth import AccessControl, Principal
from hopyard._net.rpc.status_codes import ERROR_KEY, code_of, message_of, name_of
from hopyard._net.rpc.token_header import AUTHORIZATION
from hopyard.errors import HopyardError

_MAKERS: Final = {
    (False, False): (grpc.unary_unary_rpc_method_handler, "unary_unary"),
    (False, True): (grpc.unary_stream_rpc_method_handler, "unary_stream"),
    (True, False): (grpc.stream_unary_rpc_method_handler, "stream_unary"),
    (True, True): (grpc.stream_stream_rpc_method_handler, "stream_stream"),
}
"""gRPC's functions that make a handler, and the attribute of its behaviour, by (streams requests, streams responses)."""


class AuthorizationInterceptor(grpc.aio.ServerInterceptor):
    """Applies the access control of a server to all four kinds of calls.

    It must come first: a refused call reaches no other interceptor. Its request is not read, whatever its size. Within the handler,
    `current_principal` returns the caller.

    Args:
        control: Decides which calls are accepted.
    """

    def __init__(self, control: AccessControl) -> None:
        self._control = control

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the handler of a method, or one that refuses the call; None if the server has no such method.

        Args:
            continuation: gRPC's function that returns the handler for call details.
            handler_call_details: Names the method, and has the headers of the call.
        """
        method = str(handler_call_details.method)
        authorization = [
            str(value) for name, value in handler_call_details.invocation_metadata or () if name == AUTHORIZATION
        ]
        handler = await continuation(handler_call_details)
        try:
            principal = self._control.authorize(method, authorization, exists=handler is not None)
            if handler is None:
                return None
            streaming = bool(handler.request_streaming or handler.response_streaming)
            self._control.check_load(principal, streaming=streaming)
        except HopyardError as error:
            return _refusal(error)
        return self._admitted(handler, principal, streaming=streaming)

    def _admitted(self, handler: Any, principal: Principal | None, *, streaming: bool) -> Any:
        make, attribute = _MAKERS[bool(handler.request_streaming), bool(handler.response_streaming)]
        behaviour = getattr(handler, attribute)

        async def handle(request: Any, context: Any) -> Any:
            try:
                # Again, because many calls may have been admitted before the first of them began.
                self._control.check_load(principal, streaming=streaming)
            except HopyardError as error:
                await _abort(error, context)
            with self._control.serve(principal, streaming=streaming):
                return await behaviour(request, context)

        return make(
            handle,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )


def _refusal(error: HopyardError) -> Any:
    """Return a handler that ends a call with an error, without reading the request.

    gRPC reads the request of a handler for one request before it calls the handler, so this one is for streams.
    """

    async def refuse(requests: Any, context: Any) -> None:
        await _abort(error, context)

    return grpc.stream_stream_rpc_method_handler(refuse)


async def _abort(error: HopyardError, context: Any) -> None:
    await context.abort(code_of(error), message_of(error), trailing_metadata=((ERROR_KEY, name_of(error)),))
