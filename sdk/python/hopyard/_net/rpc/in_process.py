"""Calls with one request and one response between services that share an event loop: the handler at once, without a socket.

What both sides see is what gRPC would show them: the same messages, errors, deadline and cancellation. Only services that were
started with `nearby` are reached so (an embedded cluster's), and only by callers in the same loop; streams always go over gRPC.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import grpc

from hopyard._net.rpc.status_codes import code_of, error_from, message_of, name_of
from hopyard.errors import HopyardError, Internal, TimedOut

_log = logging.getLogger(__name__)

Handler = Callable[[Any, Any], Awaitable[Any]]

_nearby: Final[ContextVar[bool]] = ContextVar("nearby", default=False)


@contextmanager
def nearby() -> Iterator[None]:
    """Servers that are started inside are reached by direct calls from their own event loop."""
    token = _nearby.set(True)
    try:
        yield
    finally:
        _nearby.reset(token)


class NearServer:
    """The handlers of one server, by method.

    Generated `add_XServicer_to_server` functions take it for a server, and so leave their handlers here.
    """

    def __init__(self) -> None:
        self.methods: dict[str, Handler] = {}
        self.loop: asyncio.AbstractEventLoop | None = None
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Nothing: the same handlers come by name."""

    def add_registered_method_handlers(
        self, service: str, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        """Take over the handlers with one request and one response."""
        for name, handler in handlers.items():
            if handler.unary_unary is not None:
                self.methods[f"/{service}/{name}"] = handler.unary_unary

    async def handle(self, method: str, request: Any, seconds: float | None) -> Any:
        """Carry out a call.

        Raises:
            HopyardError: What the handler raised, as it would arrive over gRPC; `TimedOut` after so many seconds.
        """
        self._under_way += 1
        self._idle.clear()
        deadline = asyncio.timeout(seconds)
        try:
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
        """Wait until the calls under way are over, for `grace` seconds at most; None: however long that takes."""
        try:
            async with asyncio.timeout(grace):
                await self._idle.wait()
        except TimeoutError:
            _log.warning("%d calls are still under way after %g s", self._under_way, grace)


_servers: Final[dict[str, NearServer]] = {}


def publish(address: str, server: NearServer) -> None:
    """From now on the calls of this event loop to `address` go to `server`, if `nearby` holds here."""
    if _nearby.get():
        server.loop = asyncio.get_running_loop()
        _servers[address] = server


def withdraw(address: str, server: NearServer) -> None:
    """Calls to `address` go over gRPC again."""
    if _servers.get(address) is server:
        del _servers[address]


def find(address: str, method: str) -> NearServer | None:
    """The server in this event loop that carries out a method at an address; None: there is none."""
    server = _servers.get(address)
    if server is None or method not in server.methods or asyncio.get_running_loop() is not server.loop:
        return None
    return server


class NearCall:
    """A call that begins when it is awaited."""

    def __init__(self, server: NearServer, method: str, request: Any, timeout: float | None) -> None:
        self._work = (server, method, request, timeout)

    def __await__(self) -> Generator[None, None, Any]:
        """The response."""
        server, method, request, timeout = self._work
        return server.handle(method, request, timeout).__await__()
