"""Policy processes that start others: these end with them."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

import pytest

from hopyard.errors import InvalidInput
from hopyard_scheduler.policy_process.spawn import SpawnedPolicy
from hopyard_scheduler.policy_process.streams import Desk
from tests.timing import HANG_SECONDS

CHILD = """
import signal, socket, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
line = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
line.sendall(b"here")
print(flush=True)
line.recv(1)
"""
LEADER = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]], stdout=subprocess.PIPE)
child.stdout.readline()
time.sleep(float(sys.argv[3]))
"""


class Children:
    """Waits for children to say that they are there, and for their ends."""

    def __init__(self) -> None:
        self.came: asyncio.Queue[asyncio.StreamReader] = asyncio.Queue()
        self.writers: list[asyncio.StreamWriter] = []
        self.port = 0

    async def arrived(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        assert await reader.readexactly(4) == b"here"
        self.came.put_nowait(reader)

    async def one_has_ended(self) -> None:
        """Its connection is closed, which only its end does."""
        async with asyncio.timeout(HANG_SECONDS):
            reader = await self.came.get()
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""

    def leader(self, seconds: float) -> SpawnedPolicy:
        """A process that starts a child, which leaves for no SIGTERM, and ends itself after so many seconds."""
        command = (sys.executable, "-c", LEADER, CHILD, str(self.port), str(seconds))
        return SpawnedPolicy(command, None, "", Desk(), lambda: "127.0.0.1:1")


@pytest.fixture
async def children() -> AsyncIterator[Children]:
    found = Children()
    server = await asyncio.start_server(found.arrived, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    yield found
    server.close()
    for writer in found.writers:
        writer.close()
        with contextlib.suppress(ConnectionResetError):
            await writer.wait_closed()


async def test_what_a_process_has_started_ends_with_it(children: Children) -> None:
    started = children.leader(0.0)
    with pytest.raises(InvalidInput, match="ended with 0 before it dialled in"):
        await started.take("x")
    for _ in range(3):
        await children.one_has_ended()
    await started.close()


async def test_what_a_process_has_started_ends_when_it_is_ended(children: Children) -> None:
    started = children.leader(600.0)
    taking = asyncio.create_task(started.take("x"))
    async with asyncio.timeout(HANG_SECONDS):
        children.came.put_nowait(await children.came.get())
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    await started.close()
    await children.one_has_ended()
