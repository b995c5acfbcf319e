"""Direct calls between services in one event loop, without a socket, for methods with one request and one response.

Caller and handler see the same messages, errors, deadlines and cancellations as over gRPC. Direct calls reach only
servers started within the context `nearby` (those of an embedded cluster), from callers in the same event loop. Streaming
calls always use gRPC.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Final

import grpc

from hopyard._net.rpc.status_codes import code_of, error_from, message_of, name_of
from hopyard._net.rpc.token_header import AUTHORIZATION
from hopyard.errors import HopyardError, Internal, TimedOut

_log = logging.getLogger(__name__)

Handler = Callable[[Any, Any], Awaitable[Any]]

Metadata = tuple[tuple[str, str | bytes], ...]

Admission = Callable[[str, Sequence[str]], AbstractContextManager[None]]
"""Admits a call of a method with the values of its header `authorization` while the context is open, or raises an error."""

_nearby: Final[ContextVar[bool]] = ContextVar("nearby", default=False)


@contextmanager
def nearby() -> Iterator[None]:
    """Within the context, make servers that are started reachable by direct calls from the same event loop."""
    token = _nearby.set(True)
    try:
        yield
    finally:
        _nearby.reset(token)


class NearServer:
    """The handlers of one server by method, for direct calls: calls from the same event loop that bypass the network.

    Generated `add_XServicer_to_server` functions accept it as a server and so register their handlers here.

    Attributes:
        methods: The handlers by full name of the method.
        loop: The event loop of the server; None: it was not published.
        admit: Decides whether a call is admitted, as for calls over gRPC. None: no call is.
    """

    def __init__(self) -> None:
        self.methods: dict[str, Handler] = {}
        self.admit: Admission | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Do nothing; `add_registered_method_handlers` receives the same handlers."""

    def add_registered_method_handlers(
        self, service: str, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        """Register those handlers of a service that have one request and one response.

        Args:
            service: Full name of the service, such as "hopyard.v1.AppStatService".
            handlers: Handlers by method name.
        """
        for name, handler in handlers.items():
            if handler.unary_unary is not None:
                self.methods[f"/{service}/{name}"] = handler.unary_unary

    async def handle(self, method: str, request: Any, seconds: float | None, metadata: Metadata) -> Any:
        """Call the handler of a method and return its response.

        Args:
            method: Full name, such as "/hopyard.v1.AppStatService/HasBlobs".
            request: The request message.
            seconds: Deadline in seconds from now; None: none.
            metadata: Headers of the call, with the token of the caller.

        Raises:
            HopyardError: The call was not admitted, or the handler raised it, converted as over gRPC; `TimedOut` after the deadline;
                `Internal` for any other exception of the handler.
        """
        if self.admit is None:
            raise Internal(f"{method}: the server has not started")
        authorization = [str(value) for name, value in metadata if name == AUTHORIZATION]
        self._under_way += 1
        self._idle.clear()
        deadline = asyncio.timeout(seconds)
        try:
            with self.admit(method, authorization):
                async with deadline:
                    return await self.methods[method](request, None)
        except HopyardError as error:
            raise error_from(code_of(error), message_of(error), name_of(error)) from error
        except Exception as error:
            if deadline.expired():
                raise TimedOut(f"{method}: no answer within {seconds:g} s") from error
            _log.exception("%s: unexpected %s", method, type(error).__name__)
            raise Internal(
                f"{method}: unexpected {type(error).__name__}; the service's log has the traceback"
            ) from error
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    async def finished(self, grace: float | None) -> None:
        """Wait until no direct call is pending; after `grace` seconds (None: no limit), log a warning and return."""
        try:
            async with asyncio.timeout(grace):
                await self._idle.wait()
        except TimeoutError:
            _log.warning("%d calls are still under way after %g s", self._under_way, grace)


_servers: Final[dict[str, NearServer]] = {}


def publish(address: str, server: NearServer) -> None:
    """From now on, let direct calls to `address` reach `server`, if this function is called within `nearby`; else do nothing."""
    if _nearby.get():
        server.loop = asyncio.get_running_loop()
        _servers[address] = server


def withdraw(address: str, server: NearServer) -> None:
    """Undo `publish`: later calls to `address` use gRPC. Do nothing if `server` is not the one published at `address`.

    Direct calls that have begun are not affected.
    """
    if _servers.get(address) is server:
        del _servers[address]


def find(address: str, method: str) -> NearServer | None:
    """Return the server that handles `method` at `address` without the network; None if the call must use gRPC.

    It must use gRPC if the server is not in this event loop or not published, or if the method has a stream.
    """
    server = _servers.get(address)
    if server is None or method not in server.methods or asyncio.get_running_loop() is not server.loop:
        return None
    return server


class NearCall:
    """A direct call, which bypasses the network to a server in the same event loop. It begins when it is awaited.

    Args:
        server: The server to call.
        method: Full name of the method.
        request: The request message.
        timeout: Deadline in seconds; None: none.
        metadata: Headers of the call, with the token of the caller.
    """

    def __init__(
        self, server: NearServer, method: str, request: Any, timeout: float | None, metadata: Metadata
    ) -> None:
        self._work = (server, method, request, timeout, metadata)

    def __await__(self) -> Generator[None, None, Any]:
        """Make the call and return the response.

        Raises:
            HopyardError: The handler raised it, converted as over gRPC; `TimedOut` after the deadline; `Internal` for any other
                exception of the handler.
        """
        server, method, request, timeout, metadata = self._work
        return server.handle(method, request, timeout, metadata).__await__()
