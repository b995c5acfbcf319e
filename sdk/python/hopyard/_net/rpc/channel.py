"""Client channels with Hopyard's options, deadlines and errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self

import grpc
import grpc.aio

from hopyard._net.rpc import calls, fork_guard, in_process
from hopyard._net.rpc.address import check_address, host_of
from hopyard._net.rpc.options import CHANNEL_OPTIONS
from hopyard._net.rpc.token_header import AUTHORIZATION, SCHEME
from hopyard.errors import HopyardError

DEFAULT_TIMEOUT_SECONDS: Final = 30.0
"""Default deadline in seconds of a call with one request and one response."""


Metadata = tuple[tuple[str, str | bytes], ...]
"""Headers of a call, as pairs of a name and a value."""

Headers = Callable[[], Metadata]

TokenSource = str | Callable[[], str] | None
"""A token, or a function that returns it; None: no token."""

TOKEN_SECONDS: Final = 1.0
"""Seconds for which the result of a function that returns a token is used."""


def token_metadata(token: str | None) -> Metadata:
    """Return the headers that send a token; none if `token` is None."""
    return () if token is None else ((AUTHORIZATION, f"{SCHEME}{token}"),)


class _Call:
    """A method of a channel, as generated stubs call it: starts calls with a token and a default deadline, and wraps them.

    Args:
        start: gRPC's function that starts a call.
        wrap: Wraps the started call.
        timeout: Default deadline in seconds; None: none.
        headers: Returns the headers of calls without `metadata`.
    """

    def __init__(
        self, start: Callable[..., Any], wrap: Callable[[Any], Any], timeout: float | None, headers: Headers
    ) -> None:
        self._start = start
        self._wrap = wrap
        self._timeout = timeout
        self._headers = headers

    def __call__(
        self, *args: Any, timeout: float | None = None, metadata: Metadata | None = None, **kwargs: Any
    ) -> Any:
        sent = metadata if metadata is not None else self._headers()
        started = self._start(*args, timeout=self._timeout if timeout is None else timeout, metadata=sent, **kwargs)
        return self._wrap(started)


class _Unary(_Call):
    """A method with one request and one response; a call to a server in this event loop bypasses the network (`in_process`).

    Args:
        start: gRPC's function that starts a call.
        timeout: Default deadline in seconds.
        address: unix:/PATH or HOST:PORT of the server.
        method: Full name of the method.
        headers: Returns the headers of calls without `metadata`.
    """

    def __init__(self, start: Callable[..., Any], timeout: float, address: str, method: str, headers: Headers) -> None:
        super().__init__(start, calls.UnaryUnary, timeout, headers)
        self._address = address
        self._method = method

    def __call__(
        self, *args: Any, timeout: float | None = None, metadata: Metadata | None = None, **kwargs: Any
    ) -> Any:
        server = in_process.find(self._address, self._method)
        if server is None:
            return super().__call__(*args, timeout=timeout, metadata=metadata, **kwargs)
        seconds = self._timeout if timeout is None else timeout
        sent = metadata if metadata is not None else self._headers()
        return in_process.NearCall(server, self._method, args[0], seconds, sent)


class Channel(grpc.aio.Channel):
    """A gRPC channel whose calls raise `hopyard.errors`; any generated stub accepts it.

    Args:
        inner: gRPC's channel.
        address: unix:/PATH or HOST:PORT of the server.
        timeout: Default deadline in seconds of calls with one request and one response. Streaming calls may be long and have no
            deadline by default.
        token: The token that each call sends, unless the call has `metadata`.
    """

    def __init__(self, inner: grpc.aio.Channel, *, address: str, timeout: float, token: TokenSource) -> None:
        self._inner = inner
        self._timeout = timeout
        self._token = token
        self._sent: Metadata | None = None
        self._sent_at = 0.0
        self.address: Final = address

    async def close(self, grace: float | None = None) -> None:
        """Close the channel: refuse new calls, and cancel those still pending after `grace` seconds (None: immediately)."""
        await self._inner.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Return the state of the connection; with `try_to_connect`, an idle channel starts to connect."""
        return self._inner.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait until the state of the connection differs from `last_observed_state`."""
        await self._inner.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Connect if the channel is not connected, and wait until it is; without a limit if the server cannot be reached."""
        await self._inner.channel_ready()

    async def __aenter__(self) -> Self:
        """Return this channel, which is closed when the context is left."""
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """Close the channel."""
        await self.close()

    def _headers(self) -> Metadata:
        """Return the headers with the token. A new token is used within a second after it has replaced the earlier one."""
        if not callable(self._token):
            return token_metadata(self._token)
        now = time.monotonic()
        if self._sent is None or now - self._sent_at > TOKEN_SECONDS:
            try:
                self._sent, self._sent_at = token_metadata(self._token()), now
            except HopyardError:
                if self._sent is None:
                    raise  # Later, the token that was found before may still be valid.
        return self._sent

    # The generated stubs determine the serializers and therefore the types.

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Return a callable that starts calls of a method with one request and one response.

        Generated stubs call this with the arguments of `grpc.aio.Channel`.
        """
        return _Unary(
            self._inner.unary_unary(method, *args, **kwargs), self._timeout, self.address, method, self._headers
        )

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        """Return a callable that starts calls of a method with a stream of requests and one response.

        Generated stubs call this with the arguments of `grpc.aio.Channel`.
        """
        return _Call(self._inner.stream_unary(*args, **kwargs), calls.StreamUnary, None, self._headers)

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        """Return a callable that starts calls of a method with one request and a stream of responses.

        Generated stubs call this with the arguments of `grpc.aio.Channel`.
        """
        return _Call(self._inner.unary_stream(*args, **kwargs), calls.UnaryStream, None, self._headers)

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        """Return a callable that starts calls of a method with a stream of requests and a stream of responses.

        Generated stubs call this with the arguments of `grpc.aio.Channel`.
        """
        return _Call(self._inner.stream_stream(*args, **kwargs), calls.StreamStream, None, self._headers)


def channel(
    address: str,
    *,
    token: TokenSource,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    options: Mapping[str, int | str] | None = None,
) -> Channel:
    """Open a channel. Call this inside a running event loop, and close the channel (or use `async with`).

    The channel connects at the first call and reconnects when the connection is lost. While the server is not
    available, calls raise `Unavailable`; `retry` (in `hopyard._net.rpc.retry`) repeats a call after this error.

    Args:
        address: unix:/PATH or HOST:PORT, as in a service's address file.
        token: The token that each call sends, unless the call has `metadata`, or a function that returns it, such as one that calls
            `hopyard._net.auth.find_token`; until it has returned a token, its errors are errors of the calls. None: no token, for
            methods that are open to everyone and for servers that are not part of the cluster.
        timeout: Default deadline in seconds of calls with one request and one response.
        options: gRPC channel arguments by name; each replaces Hopyard's argument of this name, and the others stay.

    Raises:
        InvalidInput: The address is neither unix:/PATH nor HOST:PORT.
        Conflict: This process was forked from one that has opened channels.
    """
    chosen = _options_for(address) | dict(options or {})
    fork_guard.begin()
    inner = grpc.aio.insecure_channel(address, options=tuple(chosen.items()))
    return Channel(inner, address=address, timeout=timeout, token=token)


def blocking_channel(address: str) -> grpc.Channel:
    """Open a plain gRPC channel for use in threads, with Hopyard's options. Its calls raise gRPC's errors, and send no token.

    Args:
        address: unix:/PATH or HOST:PORT.

    Raises:
        InvalidInput: The address is neither unix:/PATH nor HOST:PORT.
    """
    return grpc.insecure_channel(address, options=tuple(_options_for(address).items()))


def _options_for(address: str) -> dict[str, int | str]:
    check_address(address)
    host = host_of(address)
    chosen: dict[str, int | str] = dict(CHANNEL_OPTIONS)
    if host in ("localhost", "::1") or host.startswith("127."):
        # A proxy set in the environment cannot reach a socket or the loopback address of this host.
        chosen["grpc.enable_http_proxy"] = 0
    return chosen
