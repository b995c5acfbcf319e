"""What the bare substrate gives: a gRPC stream, and SQLite, without anything of Hopyard's around."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio

_SERVER = """
import asyncio, sys
import grpc.aio

async def take(requests, context):
    count = 0
    async for _ in requests:
        count += 1
    return str(count).encode()

async def main():
    server = grpc.aio.server()
    handler = grpc.stream_unary_rpc_method_handler(take)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare", {"Take": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()

asyncio.run(main())
"""


async def stream_rate(messages: int, size: int) -> float:
    """Messages a second of `size` bytes on one grpc.aio stream from this process to another."""
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", _SERVER, stdin=pipe, stdout=pipe)
    try:
        assert server.stdout is not None
        port = int(await server.stdout.readline())
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            await channel.channel_ready()
            began = time.perf_counter()
            answer: bytes = await channel.stream_unary("/bare/Take")(_messages(messages, b"x" * size))
            seconds = time.perf_counter() - began
    finally:
        server.kill()
        await server.wait()
    assert int(answer) == messages
    return messages / seconds


async def _messages(count: int, message: bytes) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield message


def commit_rate(file: Path, rows: list[tuple[bytes, ...]], group: int, synchronous: str) -> float:
    """Rows a second that bare SQLite (WAL) takes, `group` of them in one transaction."""
    connection = sqlite3.connect(file, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, payload BLOB)")
        began = time.perf_counter()
        for first in range(0, len(rows), group):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO rows (payload) VALUES (?)", rows[first : first + group])
            connection.execute("COMMIT")
        return len(rows) / (time.perf_counter() - began)
    finally:
        connection.close()
