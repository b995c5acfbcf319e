"""A channel whose calls go to servicers in this process, without a server, a port or a separate event loop.

Any generated stub accepts it. It serves programs that read data while no service runs; `in_process` serves services that run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Final, NoReturn, Self

import grpc
import grpc.aio

from hopyard.errors import Conflict

_GENERATED: Final = "hopyard.v1."
"""Beginning of the names of the modules with generated servicers, whose methods are not implemented."""


class ServicerStream:
    """The object that a stub returns for a method with a stream of responses: iterate over it to read them.

    Args:
        responses: The responses.
    """

    def __init__(self, responses: AsyncIterator[Any]) -> None:
        self._responses = responses

    def __aiter__(self) -> AsyncIterator[Any]:
        """Return an iterator over the responses."""
        return self._responses

    def cancel(self) -> bool:
        """Return False: the responses are made when they are read, so there is nothing to cancel."""
        return False


class ServicerChannel(grpc.aio.Channel):
    """A channel to the servicers that were registered with it. Their errors reach the caller unchanged.

    Generated `add_XServicer_to_server` functions accept it as a server.

    Args:
        refusal: Message of the error for methods that no registered servicer implements.
    """

    def __init__(self, refusal: str) -> None:
        self._refusal = refusal
        self._methods: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Do nothing; `add_registered_method_handlers` receives the same handlers."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Register those handlers of a service that take one request; others are ignored.

        Args:
            service: Full name of the service, such as "hopyard.v1.AppStatService".
            handlers: Handlers by method name.
        """
        for name, handler in handlers.items():
            method = handler.unary_unary or handler.unary_stream
            if method is not None and not method.__func__.__module__.startswith(_GENERATED):
                self._methods[f"/{service}/{name}"] = method

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Return a callable that calls a method with one request and one response.

        It raises `Conflict` if no servicer implements the method.
        """

        async def call(request: Any, **_options: Any) -> Any:
            return await self._find(method)(request, None)

        return call

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Return a callable that calls a method with one request and a stream of responses.

        The iteration raises `Conflict` if no servicer implements the method.
        """

        async def responses(request: Any) -> AsyncIterator[Any]:
            async for response in self._find(method)(request, None):
                yield response

        return lambda request, **_options: ServicerStream(responses(request))

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        """Return a callable that raises `Conflict` when it is called: methods with a stream of requests are not served here."""
        return self._refuse

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        """Return a callable that raises `Conflict` when it is called: methods with a stream of requests are not served here."""
        return self._refuse

    async def close(self, grace: float | None = None) -> None:
        """Do nothing: there is no connection."""

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Return READY: there is no connection that could be lost."""
        return grpc.ChannelConnectivity.READY

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Return at once."""

    async def channel_ready(self) -> None:
        """Return at once."""

    async def __aenter__(self) -> Self:
        """Return this channel."""
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """Do nothing: there is no connection."""

    def _find(self, method: str) -> Any:
        return self._methods.get(method) or self._refuse()

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise Conflict(self._refusal)
