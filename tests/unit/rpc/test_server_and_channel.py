"""Tests of a real server with a real channel, with all four kinds of calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from hopyard import errors
from hopyard._net.rpc import channel
from hopyard._net.server import Server, address_file, read_address
from tests.access import AcceptEveryone, channel_as, permitted
from tests.timing import HANG_SECONDS

SERVICE = "test.Kit"
TABLE = permitted(SERVICE, "One", "Many", "Sum", "Echo")


class Kit:
    """A service with handlers of raw bytes: each does what its request says."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    async def one(self, request: bytes, context: Any) -> bytes:
        return act(request)

    async def many(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        try:
            yield b"first"
            if request == b"hang":
                await asyncio.Event().wait()
            yield act(request)
        finally:
            self.closed.set()

    async def sum(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        return b"".join([act(request) async for request in requests])

    async def echo(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            if request == b"enough":
                return
            yield act(request)


def act(request: bytes) -> bytes:
    if request == b"stale":
        raise errors.StaleEpoch("epoch 1 is over: epoch 2 writes")
    if request == b"bug":
        raise KeyError("secret")
    if request == b"lines":
        raise errors.InvalidInput("line 1\nline 2: ü")
    if request == b"long":
        raise errors.InvalidInput("x" * 1_000_000)
    return request


def register(kit: Kit, server: grpc.aio.Server) -> None:
    handlers: dict[str, Any] = {
        "One": grpc.unary_unary_rpc_method_handler(kit.one),
        "Many": grpc.unary_stream_rpc_method_handler(kit.many),
        "Sum": grpc.stream_unary_rpc_method_handler(kit.sum),
        "Echo": grpc.stream_stream_rpc_method_handler(kit.echo),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))


def register_messages(kit: Kit, server: grpc.aio.Server) -> None:
    """Register methods whose requests are protobuf messages; the first request of a stream of `ask` is one, too."""
    decode = health_pb2.HealthCheckRequest.FromString
    handlers: dict[str, Any] = {
        "One": grpc.unary_unary_rpc_method_handler(kit.one, request_deserializer=decode),
        "Many": grpc.unary_stream_rpc_method_handler(kit.many, request_deserializer=decode),
        "Sum": grpc.stream_unary_rpc_method_handler(kit.sum, request_deserializer=decode),
        "Echo": grpc.stream_stream_rpc_method_handler(kit.echo, request_deserializer=decode),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))


@pytest.fixture
async def kit() -> Kit:
    return Kit()


@pytest.fixture
async def server(kit: Kit, tmp_path: Path) -> AsyncIterator[Server]:
    server = Server("kit", data=tmp_path, permissions=TABLE)
    server.add(register, kit, SERVICE)
    await server.start()
    yield server
    await server.stop(0)


@pytest.fixture
async def stub(server: Server) -> AsyncIterator[Any]:
    async with channel_as("user", server.address) as opened:
        yield opened


async def requests(*items: bytes) -> AsyncIterator[bytes]:
    for item in items:
        yield item


async def ask(opened: Any, kind: str, request: bytes) -> Any:
    """Make a call of one kind, and return its whole answer."""
    if kind == "unary_unary":
        return await opened.unary_unary(f"/{SERVICE}/One")(request)
    if kind == "unary_stream":
        return [item async for item in opened.unary_stream(f"/{SERVICE}/Many")(request)]
    if kind == "stream_unary":
        return await opened.stream_unary(f"/{SERVICE}/Sum")(requests(b"a", request))
    return [item async for item in opened.stream_stream(f"/{SERVICE}/Echo")(requests(b"a", request))]


KINDS = ["unary_unary", "unary_stream", "stream_unary", "stream_stream"]


@pytest.mark.parametrize(
    ("kind", "answer"), list(zip(KINDS, [b"x", [b"first", b"x"], b"ax", [b"a", b"x"]], strict=True))
)
async def test_calls_of_all_kinds_answer(stub: Any, kind: str, answer: Any) -> None:
    assert await ask(stub, kind, b"x") == answer


@pytest.mark.parametrize("kind", KINDS)
async def test_a_domain_error_arrives_as_itself(stub: Any, kind: str) -> None:
    with pytest.raises(errors.StaleEpoch, match=r"^epoch 1 is over: epoch 2 writes$"):
        await ask(stub, kind, b"stale")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("request_bytes", [b"\x0b" * 10, b"\x0b" * 10_000, b"\xff\xff\xff"])
async def test_bytes_that_are_no_message_are_the_clients_mistake(
    tmp_path: Path, kind: str, request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("kit", permissions=TABLE)
    server.add(register_messages, Kit(), SERVICE)
    async with channel_as("user", await server.start()) as opened:
        with (
            caplog.at_level(logging.WARNING, "hopyard._net.server"),
            pytest.raises(errors.InvalidInput, match="the request cannot be decoded"),
        ):
            await ask(opened, kind, request_bytes)
    await server.stop(0)
    (logged,) = caplog.records
    assert logged.exc_info is None
    assert "\n" not in logged.getMessage()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_bug_is_internal_and_logged_with_its_traceback(
    stub: Any, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "hopyard._net.server"), pytest.raises(errors.Internal) as raised:
        await ask(stub, kind, b"bug")
    assert "unexpected KeyError; the service's log has the traceback" in str(raised.value)
    assert "secret" not in str(raised.value)
    (record,) = [record for record in caplog.records if record.name == "hopyard._net.server.interceptor"]
    assert record.exc_info is not None


async def test_messages_keep_lines_and_letters_and_are_bounded(stub: Any) -> None:
    with pytest.raises(errors.InvalidInput, match=r"^line 1\nline 2: ü$"):
        await ask(stub, "unary_unary", b"lines")
    with pytest.raises(errors.InvalidInput, match=r"^x{4000,5000}\.\.\.$"):
        await ask(stub, "unary_unary", b"long")


async def test_reading_and_writing_by_hand_raise_the_same(stub: Any) -> None:
    call = stub.stream_stream(f"/{SERVICE}/Echo")()
    await call.write(b"a")
    assert await call.read() == b"a"
    await call.write(b"stale")
    with pytest.raises(errors.StaleEpoch):
        await call.read()
    with pytest.raises(errors.StaleEpoch):
        await call.write(b"b")


LARGE = b"x" * 65_536


async def write_all(call: Any, *items: bytes) -> None:
    for item in items:
        await call.write(item)


@pytest.mark.parametrize("attempt", range(10))
async def test_a_call_that_is_refused_while_requests_are_written_says_why(stub: Any, attempt: int) -> None:
    with pytest.raises(errors.StaleEpoch):
        await stub.stream_unary(f"/{SERVICE}/Sum")(requests(b"stale", *[LARGE] * 16))
    with pytest.raises(errors.StaleEpoch):
        await stub.stream_stream(f"/{SERVICE}/Echo")(requests(b"stale", *[LARGE] * 16)).read()
    with pytest.raises(errors.StaleEpoch):
        await write_all(stub.stream_stream(f"/{SERVICE}/Echo")(), b"stale", *[LARGE] * 1_000)


async def test_writing_to_a_call_that_the_other_side_ended_well_is_unavailable(stub: Any) -> None:
    call = stub.stream_stream(f"/{SERVICE}/Echo")()
    await call.write(b"enough")
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK
    with pytest.raises(errors.Unavailable, match="ended the call"):
        await call.write(b"more")


async def test_a_client_that_leaves_closes_the_handlers_generator(stub: Any, kit: Kit) -> None:
    call = stub.unary_stream(f"/{SERVICE}/Many")(b"hang")
    assert await call.read() == b"first"
    assert not kit.closed.is_set()
    call.cancel()
    await kit.closed.wait()


@pytest.mark.parametrize("fails", [False, True])
async def test_a_handler_that_cancels_its_first_write_ends_the_call(tmp_path: Path, fails: bool) -> None:
    async def begin(requests: AsyncIterator[bytes], context: Any) -> None:
        async for _ in requests:
            break
        writing = asyncio.create_task(context.write(b"first"))
        await asyncio.sleep(0)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        if fails:
            raise errors.Conflict("no more")

    def add(kit: object, server: Any) -> None:
        handlers: dict[str, Any] = {"Echo": grpc.stream_stream_rpc_method_handler(begin)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    server = Server("kit", data=tmp_path, permissions=TABLE)
    server.add(add, object(), SERVICE)

    async def requests() -> AsyncIterator[bytes]:
        yield b"hello"

    async with channel_as("user", await server.start()) as opened, asyncio.timeout(HANG_SECONDS):
        call = opened.stream_stream(f"/{SERVICE}/Echo")(requests())
        with pytest.raises(errors.Conflict) if fails else nullcontext():
            async for _ in call:
                pass
    await server.stop(0)


async def test_nobody_there_is_unavailable_and_a_deadline_is_timed_out(server: Server) -> None:
    async with channel_as("user", server.address) as opened:
        with pytest.raises(errors.TimedOut):
            await opened.stream_unary(f"/{SERVICE}/Sum")(endless(), timeout=0.05)
        await server.stop(0)
        with pytest.raises(errors.Unavailable):
            await opened.unary_unary(f"/{SERVICE}/One")(b"x")
        for wrong in ("somewhere", "unix:relative.sock", "host:port", ":1"):
            with pytest.raises(errors.InvalidInput, match="unix:/PATH for a socket on this computer, or HOST:PORT"):
                channel(wrong, token=None)


async def endless() -> AsyncIterator[bytes]:
    yield b"x"
    await asyncio.Event().wait()


async def test_an_unknown_method_is_unsupported(stub: Any) -> None:
    with pytest.raises(errors.Unsupported):
        await stub.unary_unary(f"/{SERVICE}/Other")(b"x")


async def health(opened: Any, service: str) -> str:
    answer = await health_pb2_grpc.HealthStub(opened).Check(health_pb2.HealthCheckRequest(service=service))
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


async def test_health_follows_readiness_and_the_stop(tmp_path: Path) -> None:
    server = Server("kit", data=tmp_path, permissions=TABLE)
    server.add(register, Kit(), SERVICE)
    async with channel_as("user", await server.start(ready=False)) as opened:
        assert await health(opened, "") == "NOT_SERVING"
        await server.set_ready(True)
        assert await health(opened, "") == await health(opened, SERVICE) == "SERVING"
        watch = health_pb2_grpc.HealthStub(opened).Watch(health_pb2.HealthCheckRequest(service=SERVICE))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        stop = asyncio.create_task(server.stop(5))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert server.stopping.is_set()
        watch.cancel()
        await stop
        await server.stop()


async def test_reflection_names_the_service(stub: Any) -> None:
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc  # type: ignore[import-untyped]

    call = reflection_pb2_grpc.ServerReflectionStub(stub).ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    answer = await call.read()
    listed = {service.name for service in answer.list_services_response.service}
    assert listed == {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
    call.cancel()


async def test_the_address_file_comes_and_goes(tmp_path: Path) -> None:
    server = Server("kit", data=tmp_path / "data", permissions=TABLE)
    address = await server.start()
    assert read_address(tmp_path / "data", "kit") == address
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["kit.address", "run", "secrets"]
    await server.stop()
    with pytest.raises(errors.NotFound, match="no kit runs with this data folder"):
        read_address(tmp_path / "data", "kit")


async def test_a_successors_address_file_stays(server: Server, tmp_path: Path) -> None:
    address_file(tmp_path, "kit").write_text("127.0.0.1:1\n")
    await server.stop(0)
    assert read_address(tmp_path, "kit") == "127.0.0.1:1"


async def test_a_taken_port_is_a_conflict() -> None:
    first = Server("first", host="127.0.0.1", insecure=True, authenticator=AcceptEveryone())
    address = await first.start()
    second = Server(
        "second",
        host="127.0.0.1",
        port=int(address.rpartition(":")[2]),
        insecure=True,
        authenticator=AcceptEveryone(),
    )
    with pytest.raises(errors.Conflict, match=r"second cannot listen on 127\.0\.0\.1"):
        await second.start()
    await first.stop(0)


async def test_a_second_server_does_not_steal_the_socket(server: Server, tmp_path: Path) -> None:
    """gRPC would silently replace the socket."""
    with pytest.raises(errors.Conflict, match=r"another kit .* uses this data folder"):
        await Server("kit", data=tmp_path, permissions=TABLE).start()
    async with channel_as("user", server.address) as opened:
        assert await opened.unary_unary(f"/{SERVICE}/One")(b"still here") == b"still here"


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::", "10.1.2.3", "example.org"])
def test_tcp_without_encryption_is_refused_unless_said_aloud(host: str, tmp_path: Path) -> None:
    async def make(insecure: bool, data: Path | None = tmp_path) -> None:
        Server("kit", host=host, insecure=insecure, data=data)

    with pytest.raises(errors.Conflict, match=r"refusing to listen on .*TCP is not encrypted.*--insecure"):
        asyncio.run(make(insecure=False))
    asyncio.run(make(insecure=True))
    with pytest.raises(errors.InvalidInput, match=r"--host needs --data DIR: the folder secrets"):
        asyncio.run(make(insecure=True, data=None))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"port": 4650}, "--port 4650 is for TCP: add --host ADDRESS, or omit --port"),
        ({"insecure": True}, "--insecure is for TCP: add --host ADDRESS, or omit --insecure"),
    ],
)
async def test_options_of_tcp_need_a_host(options: Any, message: str) -> None:
    with pytest.raises(errors.InvalidInput, match=message):
        Server("kit", **options)
