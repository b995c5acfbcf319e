"""Tests of the count of calls: each call is counted as its caller's from its headers to its end, and none stays counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from hopyard import errors
from hopyard._net.auth import AccessControl, CallerKind, Principal, current_principal
from hopyard._net.auth.access_control import MOST_CALLS
from hopyard._net.rpc import Channel, channel
from hopyard._net.rpc.channel import token_metadata
from hopyard._net.server import Server
from hopyard._net.server.authorization import OPEN_SECONDS
from tests.timing import HANG_SECONDS


class AnyUser:
    """Accepts each token as that of a user with this id."""

    def authenticate(self, token: str) -> Principal | None:
        return Principal(CallerKind.USER, token)


class Caller:
    """Servicer of two methods: `Health.Check`, which is open, and `GetCluster`, which returns who calls."""

    def __init__(self) -> None:
        self.both = asyncio.Barrier(2)

    async def get_cluster(self, request: bytes, context: Any) -> bytes:
        before = str(current_principal())
        if request == b"hang":
            await asyncio.Event().wait()
        async with asyncio.timeout(HANG_SECONDS):
            await self.both.wait()
        assert str(current_principal()) == before
        return before.encode()


@pytest.fixture
async def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Channel, AccessControl]]:
    """A channel to a server with a `Caller`, and the access control of the server."""
    made: list[AccessControl] = []

    def control(*args: Any) -> AccessControl:
        made.append(AccessControl(*args))
        return made[0]

    monkeypatch.setattr("hopyard._net.server.server.AccessControl", control)
    caller = Caller()

    def register(kit: object, server: Any) -> None:
        handlers: dict[str, Any] = {"GetCluster": grpc.unary_unary_rpc_method_handler(caller.get_cluster)}
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("hopyard.v1.ExperimentService", handlers),)
        )

    server = Server("scheduler", data=tmp_path, authenticator=AnyUser())
    server.add(register, object(), "hopyard.v1.ExperimentService")
    async with channel(await server.start(), token=None) as opened:
        yield opened, made[0]
    await server.stop(0)


async def silence() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while not reached():  # noqa: ASYNC110
            await asyncio.sleep(0)


GET_CLUSTER = "/hopyard.v1.ExperimentService/GetCluster"
CHECK = "/grpc.health.v1.Health/Check"


async def test_calls_at_the_same_time_see_their_own_callers(counted: tuple[Channel, AccessControl]) -> None:
    opened, control = counted
    call = opened.unary_unary(GET_CLUSTER)
    found = await asyncio.gather(call(b"", metadata=token_metadata("one")), call(b"", metadata=token_metadata("two")))
    assert list(found) == [b"user one", b"user two"]
    await until(lambda: not control.calls)


@pytest.mark.parametrize("how", ["cancelled", "without a request", "refused", "unknown"])
async def test_no_call_stays_counted(
    counted: tuple[Channel, AccessControl], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    opened, control = counted
    user = token_metadata("user")
    most, begin = [0], control.begin

    def watched(principal: Principal | None, *, streaming: bool) -> None:
        begin(principal, streaming=streaming)
        most.append(control.calls)

    monkeypatch.setattr(control, "begin", watched)
    call: Any
    match how:
        case "cancelled":
            call = opened.unary_unary(GET_CLUSTER)(b"hang", metadata=user)
        case "without a request":
            call = opened.stream_unary(GET_CLUSTER)(silence(), metadata=user)
        case "refused":
            call = opened.unary_unary(GET_CLUSTER)(b"")
        case _:
            call = opened.unary_unary("/hopyard.v1.ExperimentService/Unknown")(b"", metadata=user)
    if how in ("refused", "unknown"):
        with pytest.raises(errors.HopyardError):
            await call
    else:
        await until(lambda: control.calls > 0)
        call.cancel()
    await until(lambda: not control.calls)
    assert max(most) == (0 if how in ("refused", "unknown") else 1)


async def test_callers_without_a_token_cannot_keep_health_checks_from_others(
    counted: tuple[Channel, AccessControl], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They send the headers of as many checks as are allowed, and no request. The timers of these calls elapse after the refusal."""
    elapse: list[Callable[[], object]] = []
    loop = asyncio.get_running_loop()
    call_later = loop.call_later

    def held(delay: float, callback: Callable[..., object], *args: Any, **kwargs: Any) -> asyncio.TimerHandle:
        if delay == OPEN_SECONDS:
            elapse.append(callback)
        return call_later(delay, callback, *args, **kwargs)

    monkeypatch.setattr(loop, "call_later", held)
    opened, control = counted
    limit = MOST_CALLS[None][False]
    calls = [opened.stream_unary(CHECK)(silence()) for _ in range(limit)]
    await until(lambda: control.calls == limit)
    with pytest.raises(errors.Exhausted):
        await opened.unary_unary(CHECK)(b"")
    assert len(elapse) == limit
    for callback in elapse:
        callback()
    await until(lambda: not control.calls)
    await opened.unary_unary(CHECK)(b"")
    for call in calls:
        call.cancel()
