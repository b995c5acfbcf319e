"""Tests that the child processes of a policy process end with it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from hopyard._net.auth import TokenAuthenticator
from hopyard.errors import InvalidInput
from hopyard.policy.vocabulary import StreamId
from hopyard_scheduler.policy_process.command import CommandLauncher
from hopyard_scheduler.policy_process.connections import ConnectionRegistry
from hopyard_scheduler.policy_process.folders import PolicyFolders
from hopyard_scheduler.policy_process.own_policy import OwnPolicyLauncher
from hopyard_scheduler.policy_process.spawn import Invocation, SpawnedPolicy
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
    """A server to which child processes connect, which shows that they have started and when they end."""

    def __init__(self) -> None:
        self.came: asyncio.Queue[asyncio.StreamReader] = asyncio.Queue()
        self.writers: list[asyncio.StreamWriter] = []
        self.port = 0
        self.folders = PolicyFolders()

    async def arrived(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        assert await reader.readexactly(4) == b"here"
        self.came.put_nowait(reader)

    async def one_has_ended(self) -> None:
        """Wait until one child has ended: its connection is closed only then."""
        async with asyncio.timeout(HANG_SECONDS):
            reader = await self.came.get()
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""

    def leader(self, seconds: float) -> SpawnedPolicy:
        """Return a source of a process that starts a child which ignores SIGTERM, and ends after `seconds`."""
        command = (sys.executable, "-c", LEADER, CHILD, str(self.port), str(seconds))
        connection = CommandLauncher(command, ConnectionRegistry(), lambda: "127.0.0.1:1", TokenAuthenticator())
        return SpawnedPolicy(connection, None, "", self.folders)


@pytest.fixture
async def children() -> AsyncIterator[Children]:
    found = Children()
    server = await asyncio.start_server(found.arrived, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    yield found
    found.folders.close()
    server.close()
    for writer in found.writers:
        writer.close()
        with contextlib.suppress(ConnectionResetError):
            await writer.wait_closed()


async def test_what_a_process_has_started_ends_with_it(children: Children) -> None:
    started = children.leader(0.0)
    with pytest.raises(InvalidInput, match="ended with 0 before it dialled in"):
        await started.take(StreamId("x"))
    for _ in range(3):
        await children.one_has_ended()
    await started.close()


async def test_what_a_process_has_started_ends_when_it_is_ended(children: Children) -> None:
    started = children.leader(600.0)
    taking = asyncio.create_task(started.take(StreamId("x")))
    async with asyncio.timeout(HANG_SECONDS):
        children.came.put_nowait(await children.came.get())
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    await started.close()
    await children.one_has_ended()


DEAF = """
import os, socket, sys
with socket.socket(fileno=int(sys.argv[-1])) as line:
    line.sendall(bytes.fromhex(sys.argv[1]))
    line.recv(1)
"""


class Talks(OwnPolicyLauncher):
    """A launcher of a process that sends the bytes `said` and waits until its connection is closed.

    Args:
        said: The bytes, as hexadecimal digits.
    """

    def __init__(self, said: str) -> None:
        super().__init__("mine:Mine")
        self._said = said

    async def begin(self, code: Path) -> Invocation:
        found = await super().begin(code)
        return replace(found, arguments=(sys.executable, "-c", DEAF, self._said, str(found.sockets[0])))


@pytest.mark.parametrize("said", ["ffffffff", "00000002ffff"], ids=["too large", "no message"])
async def test_a_process_that_says_what_is_no_message_is_hung_up_on(children: Children, said: str) -> None:
    started = SpawnedPolicy(Talks(said), None, "", children.folders)
    with pytest.raises(InvalidInput, match="the process of policy mine:Mine ended with 0 before it started"):
        await started.take(StreamId("x"))
    await started.close()


async def test_a_process_has_one_stream_and_is_started_again_for_another(children: Children) -> None:
    started = SpawnedPolicy(OwnPolicyLauncher("default"), None, "", children.folders)
    async with asyncio.timeout(HANG_SECONDS):
        first = await started.take(StreamId("x"))
        before = started.pid
        started.give_back(first)
        assert await started.take(StreamId("x")) is first
        assert started.pid == before
        second = await started.take(StreamId("x"))
        assert second is not first
        assert first.closed
        assert started.pid != before
    await started.close()
    assert second.closed


HOLDER = """
import sys, time
from pathlib import Path
from hopyard_scheduler.policy_process.folders import PolicyFolders
folders = PolicyFolders(Path(sys.argv[1]))
print(folders.make(), flush=True)
time.sleep(600)
"""


async def test_the_folder_of_a_process_that_is_killed_is_removed_by_the_next_one(tmp_path: Path) -> None:
    pipe = asyncio.subprocess.PIPE
    holder = await asyncio.create_subprocess_exec(sys.executable, "-c", HOLDER, str(tmp_path), stdout=pipe)
    assert holder.stdout is not None
    async with asyncio.timeout(HANG_SECONDS):
        made = Path((await holder.stdout.readline()).decode().strip())
    others = PolicyFolders(tmp_path)
    others.remove_abandoned()
    assert made.is_dir()  # noqa: ASYNC240 - quick
    holder.kill()
    await holder.communicate()
    others.remove_abandoned()
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240 - quick
