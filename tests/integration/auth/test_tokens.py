"""Tests of what happens to tokens while services run: replaced tokens, logs, and generators in other processes."""

from __future__ import annotations

import io
import logging
import shutil
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hopyard import errors
from hopyard._net.auth import CallerKind, SecretsFolder, new_token
from hopyard._net.rpc import channel
from hopyard._net.server import LogFormat, Server, set_up_logging
from hopyard_hpgen.generators.external import _headers
from tests.access import channel_as, permitted
from tests.timing import HANG_SECONDS
from tests.unit.rpc.test_direct_calls import SERVICE, Kit, register


async def test_an_open_channel_uses_the_token_that_has_replaced_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(sys.modules["hopyard._net.rpc.channel"], "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def serve() -> Server:
        server = Server("kit", data=tmp_path, permissions=permitted(SERVICE, "One"))
        server.add(register, Kit(), SERVICE)
        await server.start()
        return server

    server = await serve()
    async with channel_as("user", server.address) as opened:
        one = opened.unary_unary(f"/{SERVICE}/One")
        assert await one(b"good", timeout=HANG_SECONDS) == b"good"
        await server.stop(0)
        shutil.rmtree(tmp_path / "secrets")
        now[0] += 2.0
        server = await serve()
        assert await one(b"good", timeout=HANG_SECONDS, wait_for_ready=True) == b"good"
        shutil.rmtree(tmp_path / "secrets")
        now[0] += 2.0
        assert (
            await one(b"good", timeout=HANG_SECONDS) == b"good"
        )  # The last token is kept while there is no other one.
        await server.stop(0)


@pytest.mark.parametrize("format", list(LogFormat))
def test_a_token_that_a_library_logs_is_removed(format: LogFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    token, ticket = new_token(CallerKind.USER).text, "hop_ticket_eyJhIjoxfQ==.c2ln"
    stream = io.StringIO()
    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        set_up_logging("test", format=format, stream=stream)
        logging.getLogger("grpc._cython.cygrpc").error("Invalid encoding on %r", f"Bearer {token}")
        logging.getLogger("other").info("%s and %d, %s", ticket, 5, "the rest")
        try:
            b"\xff".decode()
        except UnicodeDecodeError:
            logging.getLogger("grpc._cython.cygrpc").exception("a caller sent no text")
            logging.getLogger("hopyard").exception("a bug")
        try:
            raise ValueError(token)
        except ValueError:
            logging.getLogger("hopyard").exception("a bug with a token")
        with monkeypatch.context() as patch:  # The error of a wrong entry is printed, not raised into the caller.
            patch.setattr(sys, "stderr", io.StringIO())
            logging.getLogger("other").warning("%d items", "three")
    finally:
        root.handlers[:], root.level = before
    said = stream.getvalue()
    assert token not in said
    assert "hop_user_***" in said
    assert "hop_ticket_*** and 5, the rest" in said
    assert "ValueError: hop_user_***" in said
    assert said.count("Traceback") == 2


async def test_a_header_that_is_no_text_puts_no_token_into_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """gRPC logs such headers with their value before any code of Hopyard sees the call."""
    server = Server("kit", data=tmp_path)
    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        set_up_logging("test")
        address = await server.start()
        token = SecretsFolder(tmp_path / "secrets").token(CallerKind.USER)
        async with channel(address, token=None) as opened:
            call = opened.unary_unary("/hopyard.v1.ExperimentService/ListExperiments")
            with pytest.raises(errors.HopyardError):
                await call(b"", metadata=(("authorization", f"Bearer {token}x"), ("authorization", f"Bearer {token}")))
    finally:
        root.handlers[:], root.level = before
    await server.stop(0)
    assert token not in capfd.readouterr().err


def test_the_service_token_is_not_sent_to_a_generator_that_an_experiment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, generator = new_token(CallerKind.SERVICE).text, new_token(CallerKind.SERVICE).text
    monkeypatch.setenv("HOPYARD_SERVICE_TOKEN", cluster)
    assert _headers("127.0.0.1:1") == ()
    assert _headers(f"unix:{tmp_path}/run/generator.sock") == ()
    monkeypatch.setenv("HOPYARD_GENERATOR_TOKEN", generator)
    assert _headers("127.0.0.1:1") == (("authorization", f"Bearer {generator}"),)
    monkeypatch.setenv("HOPYARD_GENERATOR_TOKEN", "wrong")
    with pytest.raises(errors.InvalidInput, match="HOPYARD_GENERATOR_TOKEN: found no token"):
        _headers("127.0.0.1:1")
    monkeypatch.delenv("HOPYARD_GENERATOR_TOKEN")
    monkeypatch.setenv("HOPYARD_GENERATOR_TOKEN_FILE", "/nowhere")
    with pytest.raises(errors.NotFound, match=r"HOPYARD_GENERATOR_TOKEN_FILE: .*/nowhere"):
        _headers("127.0.0.1:1")
    SecretsFolder(tmp_path / "secrets").make()
    own = SecretsFolder(tmp_path / "secrets").token(CallerKind.SERVICE)
    assert _headers(f"unix:{tmp_path}/run/generator.sock") == (("authorization", f"Bearer {own}"),)


async def test_a_raw_header_with_bytes_that_are_no_text_is_refused(tmp_path: Path) -> None:
    server = Server("kit", data=tmp_path)
    path = (await server.start()).removeprefix("unix:")
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(path)
        raw.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
    async with channel_as("user", server.address) as opened:
        stub: Any = opened.unary_unary("/grpc.health.v1.Health/Check")
        assert await stub(b"", timeout=HANG_SECONDS) == b"\x08\x01"
    await server.stop(0)
