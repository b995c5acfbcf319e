"""A server interceptor that refuses calls which their callers may not make."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
import grpc.aio

from hopyard._net.auth import AccessControl, Principal
from hopyard._net.auth.principal import present
from hopyard._net.rpc.status_codes import ERROR_KEY, code_of, message_of, name_of
from hopyard._net.rpc.token_header import AUTHORIZATION
from hopyard.errors import HopyardError

OPEN_SECONDS: Final = 5.0
"""Maximum seconds of a call without a token that has one request and one response."""

OPEN_STREAM_SECONDS: Final = 600.0
"""Maximum seconds of a stream without a token, such as `Health/Watch`. Clients open it again."""


class AuthorizationInterceptor(grpc.aio.ServerInterceptor):
    """Applies the access control of a server to all four kinds of calls.

    It must come first, so that a refused call reaches no handler of another interceptor. The request of a refused call is not read,
    whatever its size. Within the handler, `current_principal` returns the caller.

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
            self._begin(principal, streaming=bool(handler.request_streaming or handler.response_streaming))
        except HopyardError as error:
            return _refusal(error)
        return handler

    def _begin(self, principal: Principal | None, *, streaming: bool) -> None:
        """Count the call of the present task until the task ends, and make `principal` the current one in it.

        gRPC runs the interceptors and the handler of a call in one task, so the count includes the time until the request arrives.
        A call without a token is cancelled if it has not ended after `OPEN_SECONDS`, a stream after `OPEN_STREAM_SECONDS`.
        """
        task = asyncio.current_task()
        if task is None:
            raise AssertionError("gRPC calls interceptors in the task of the call")
        self._control.begin(principal, streaming=streaming)
        task.add_done_callback(lambda _: self._control.end(principal, streaming=streaming))
        if principal is None:
            # Callers without a token could otherwise take all open calls by sending headers only.
            seconds = OPEN_STREAM_SECONDS if streaming else OPEN_SECONDS
            timer = asyncio.get_running_loop().call_later(seconds, task.cancel)
            task.add_done_callback(lambda _: timer.cancel())
        present.set(principal)


def _refusal(error: HopyardError) -> Any:
    """Return a handler that ends a call with an error, without reading the request.

    gRPC reads the request of a handler for one request before it calls the handler, so this one is for streams.
    """

    async def refuse(requests: Any, context: Any) -> None:
        await _abort(error, context)

    return grpc.stream_stream_rpc_method_handler(refuse)


async def _abort(error: HopyardError, context: Any) -> None:
    await context.abort(code_of(error), message_of(error), trailing_metadata=((ERROR_KEY, name_of(error)),))
