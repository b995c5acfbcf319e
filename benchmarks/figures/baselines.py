"""Baselines: what a gRPC stream, SQLite and forked processes achieve without Hopyard."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

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
    """Return how many messages of `size` bytes per second one grpc.aio stream transfers from this process to another."""
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", _SERVER, stdin=pipe, stdout=pipe)
    try:
        assert server.stdout is not None
        port = int(await server.stdout.readline())
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            await channel.channel_ready()
            began = time.perf_counter()
            take: Any = channel.stream_unary("/bare/Take")
            answer: bytes = await take(_messages(messages, b"x" * size))
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
    """Return how many rows per second plain SQLite (WAL mode) stores, with `group` rows per transaction.

    `synchronous` is SQLite's setting of that name.
    """
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


_FORK_SERVER = """
import os, sys

jobs, iterations, slots = map(int, sys.argv[1:])
sys.stdout.write("ready\\n")
sys.stdout.flush()
sys.stdin.readline()
left, done, running = jobs, 0, {}
while done < jobs:
    while left and len(running) < slots:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            for position in range(1, iterations + 1):
                os.write(writing, b'{"position": %d, "score": 0.5}\\n' % position)
            os._exit(0)
        os.close(writing)
        running[pid] = reading
        left -= 1
    pid, _ = os.wait()
    with open(running.pop(pid), "rb") as said:
        assert len(said.readlines()) == iterations
    done += 1
sys.stdout.write("done\\n")
"""


def fork_rate(jobs: int, iterations: int, slots: int) -> float:
    """Return how many jobs per second a server completes that forks a process per job and reads its reports from a pipe.

    At most `slots` processes run at the same time. Before forking, the server has imported what a training process imports.
    """
    code = "import hopyard, grpc, numpy\n" + _FORK_SERVER
    arguments = [sys.executable, "-c", code, *map(str, (jobs, iterations, slots))]
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdout.readline()
        began = time.perf_counter()
        server.stdin.write("go\n")
        server.stdin.flush()
        server.stdout.readline()
        return jobs / (time.perf_counter() - began)
