"""Tests that the table of permissions decides about every method of every service, on every way to a server."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor
from grpc_health.v1 import health_pb2  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection_pb2  # type: ignore[import-untyped]

import hopyard.v1
from hopyard import errors
from hopyard._net.auth import CallerKind, Principal, current_principal
from hopyard._net.auth.permissions import OPEN, PERMISSIONS
from hopyard._net.rpc import Channel, channel
from hopyard._net.rpc.channel import token_metadata
from hopyard._net.rpc.in_process import nearby
from hopyard._net.server import Server
from tests.timing import HANG_SECONDS

MIB: Final = 1024 * 1024
WAYS: Final = ["socket", "in process", "TCP"]


def files() -> Iterator[FileDescriptor]:
    """Yield the descriptors of all protos of Hopyard, and of the services that every server has."""
    for module in pkgutil.iter_modules(hopyard.v1.__path__):
        if module.name.endswith("_pb2"):
            yield importlib.import_module(f"hopyard.v1.{module.name}").DESCRIPTOR
    yield health_pb2.DESCRIPTOR
    yield reflection_pb2.DESCRIPTOR


def methods() -> dict[str, MethodDescriptor]:
    """Return all methods by their full names."""
    return {
        f"/{service.full_name}/{method.name}": method
        for file in files()
        for service in file.services_by_name.values()
        for method in service.methods
    }


def without_entry(table: Mapping[str, object]) -> set[str]:
    """Return the methods that are neither in a table of permissions nor open."""
    return set(methods()) - set(table) - OPEN


def test_every_method_is_in_the_table_and_the_table_has_no_other() -> None:
    assert without_entry(PERMISSIONS) == set()
    installed = set(methods())
    assert set(PERMISSIONS) <= installed
    assert OPEN - installed <= {"/grpc.health.v1.Health/List"}  # Newer versions of grpcio-health-checking have it.


def test_a_method_without_an_entry_is_found() -> None:
    for method in PERMISSIONS:
        assert without_entry({name: PERMISSIONS[name] for name in PERMISSIONS if name != method}) == {method}


class ByName:
    """Accepts the names of kinds of callers as tokens. Tickets permit the method that `method` names."""

    method = ""

    def authenticate(self, token: str) -> Principal | None:
        if token not in list(CallerKind):
            return None
        return Principal(CallerKind(token), self.method if token == CallerKind.TICKET else "test")


class Everything:
    """Implements all methods of Hopyard with raw bytes: each answers with the kind of its caller."""

    def __init__(self) -> None:
        self.calls = 0

    def register(self, server: Any) -> None:
        handlers: dict[str, dict[str, Any]] = {}
        for name, method in methods().items():
            service, _, call = name[1:].partition("/")
            if service.startswith("hopyard."):
                handlers.setdefault(service, {})[call] = self._handler(method)
        for service, of in handlers.items():
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, of),))
            server.add_registered_method_handlers(service, of)

    def _handler(self, method: MethodDescriptor) -> Any:
        ways: dict[tuple[bool, bool], Any] = {
            (False, False): grpc.unary_unary_rpc_method_handler(self._one),
            (False, True): grpc.unary_stream_rpc_method_handler(self._many),
            (True, False): grpc.stream_unary_rpc_method_handler(self._one),
            (True, True): grpc.stream_stream_rpc_method_handler(self._many),
        }
        return ways[streams(method)]

    async def _one(self, request: Any, context: Any) -> bytes:
        self.calls += 1
        return current_principal().kind.encode()

    async def _many(self, request: Any, context: Any) -> AsyncIterator[bytes]:
        self.calls += 1
        yield current_principal().kind.encode()


def streams(method: MethodDescriptor) -> tuple[bool, bool]:
    """Return whether the requests and the responses of a method are streams."""
    return bool(method.client_streaming), bool(method.server_streaming)


async def call(opened: Channel, name: str, method: MethodDescriptor, metadata: Any) -> bytes:
    """Call a method with an empty request, and return its first response."""

    async def nothing() -> AsyncIterator[bytes]:
        yield b""

    options: dict[str, Any] = {"metadata": metadata, "timeout": HANG_SECONDS}
    match streams(method):
        case (False, False):
            answer: Any = await opened.unary_unary(name)(b"", **options)
        case (True, False):
            answer = await opened.stream_unary(name)(nothing(), **options)
        case (False, True):
            answer = await opened.unary_stream(name)(b"", **options).read()
        case _:
            answer = await opened.stream_stream(name)(nothing(), **options).read()
    return answer if isinstance(answer, bytes) else b""


@pytest.fixture(params=WAYS)
async def reached(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[str, Server, Everything]]:
    """A server with all methods, with the name of the way to it."""
    way: str = request.param
    tcp: dict[str, Any] = {"host": "127.0.0.1", "insecure": True} if way == "TCP" else {"data": tmp_path}
    server, everything = Server("all", authenticator=ByName(), **tcp), Everything()
    register: Callable[[Everything, Any], None] = Everything.register
    server.add(register, everything, "hopyard.v1.ExperimentService")
    with nearby() if way == "in process" else nullcontext():
        await server.start()
    yield way, server, everything
    await server.stop(0)


async def test_the_table_decides_about_every_method_and_kind_of_caller(
    reached: tuple[str, Server, Everything], monkeypatch: pytest.MonkeyPatch
) -> None:
    way, server, everything = reached
    tested = 0
    async with channel(server.address, token=None) as opened:
        for name, method in methods().items():
            monkeypatch.setattr(ByName, "method", name.rpartition("/")[2])
            if way == "in process" and (streams(method) != (False, False) or name.startswith("/grpc.")):
                continue  # These calls use the socket.
            for kind in (None, *CallerKind):
                metadata = () if kind is None else token_metadata(kind)
                before = everything.calls
                tested += 1
                if name in OPEN:
                    await call(opened, name, method, metadata)
                elif kind is None:
                    with pytest.raises(errors.Unauthenticated, match="needs a valid token"):
                        await call(opened, name, method, metadata)
                    assert everything.calls == before
                elif kind in PERMISSIONS[name]:
                    answer = await call(opened, name, method, metadata)
                    assert answer == kind.encode() or name.startswith("/grpc.")
                else:
                    with pytest.raises(errors.PermissionDenied, match=f"found a token of the kind {kind}"):
                        await call(opened, name, method, metadata)
                    assert everything.calls == before
    assert tested >= 300


async def test_a_method_that_no_service_has_is_unimplemented_for_callers_with_a_token(tmp_path: Path) -> None:
    server = Server("all", data=tmp_path, authenticator=ByName())
    async with channel(await server.start(), token=None) as opened:
        with pytest.raises(errors.Unauthenticated):
            await opened.unary_unary("/hopyard.v2.Later/Act")(b"")
        with pytest.raises(errors.Unsupported):
            await opened.unary_unary("/hopyard.v2.Later/Act")(b"", metadata=token_metadata("user"))
    await server.stop(0)


async def test_a_refused_call_is_not_read(tmp_path: Path) -> None:
    """A request of 32 MiB is not decoded, and a stream whose client sends nothing is refused at once."""
    decoded: list[int] = []

    def register(kit: object, server: Any) -> None:
        async def one(request: Any, context: Any) -> bytes:
            raise AssertionError("the call was refused")

        def decode(data: bytes) -> bytes:
            decoded.append(len(data))
            return data

        handlers: dict[str, Any] = {
            "AppendJournal": grpc.unary_unary_rpc_method_handler(one, request_deserializer=decode),
            "ImportJournal": grpc.stream_unary_rpc_method_handler(one, request_deserializer=decode),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("hopyard.v1.AppStatService", handlers),))

    server = Server("appstat", data=tmp_path, request_bytes=64 * MIB)
    server.add(register, object(), "hopyard.v1.AppStatService")

    async def silence() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async with channel(await server.start(), token=None) as opened, asyncio.timeout(HANG_SECONDS):
        with pytest.raises(errors.Unauthenticated):
            await opened.unary_unary("/hopyard.v1.AppStatService/AppendJournal")(bytes(32 * MIB), timeout=HANG_SECONDS)
        refused = opened.stream_unary("/hopyard.v1.AppStatService/ImportJournal")(silence())
        with pytest.raises(errors.Unauthenticated):
            await refused
    assert decoded == []
    await server.stop(0)


async def test_streams_of_one_token_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(importlib.import_module("hopyard._net.auth.access_control").MOST_CALLS, CallerKind.USER, (3, 3))
    ended = asyncio.Event()

    def register(kit: object, server: Any) -> None:
        async def many(request: Any, context: Any) -> AsyncIterator[bytes]:
            yield b"begun"
            await ended.wait()

        handlers: dict[str, Any] = {"WatchExperiment": grpc.unary_stream_rpc_method_handler(many)}
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("hopyard.v1.ExperimentService", handlers),)
        )

    server = Server("scheduler", data=tmp_path, authenticator=ByName())
    server.add(register, object(), "hopyard.v1.ExperimentService")
    async with channel(await server.start(), token="user") as opened, asyncio.timeout(HANG_SECONDS):
        watch = opened.unary_stream("/hopyard.v1.ExperimentService/WatchExperiment")
        begun = [watch(b"") for _ in range(3)]
        for one in begun:
            assert await one.read() == b"begun"
        with pytest.raises(errors.Exhausted, match="has 3 streams at this server"):
            await watch(b"").read()
        ended.set()
        for one in begun:
            assert await one.read() is grpc.aio.EOF
        again = watch(b"")
        assert await again.read() == b"begun"
        assert await again.read() is grpc.aio.EOF
    await server.stop(0)
