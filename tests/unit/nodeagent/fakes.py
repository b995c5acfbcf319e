"""A store and an executor for the tests of the node agent; each test sets their behaviour."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path

from hopyard.errors import DataLoss, NotFound
from hopyard.v1 import application_pb2, resource_manager_pb2
from hopyard_nodeagent.runs.executor import Executor
from hopyard_nodeagent.runs.run import NodeRun
from hopyard_nodeagent.runs.training_process import Sink
from hopyard_nodeagent.snapshots.store import BlobClient
from hopyard_nodeagent.snapshots.transfers import packed_chunks


class ScriptedStore(BlobClient):
    """Simulates the store in memory. Calls wait until `gate` is open, then raise the errors in `failures` one by one, then succeed."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.owned: set[tuple[str, str]] = set()
        self.failures: list[Exception] = []
        self.asked = 0
        self.puts = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def _answer(self) -> None:
        self.asked += 1
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)

    async def has(self, sha256: str, owner: str) -> bool:
        await self._answer()
        return sha256 in self.blobs

    async def stored(self, hashes: Sequence[str], owner: str = "") -> set[str]:
        if self.failures:
            raise self.failures.pop(0)
        return {s for s in hashes if s in self.blobs and (not owner or (s, owner) in self.owned)}

    async def put(self, file: Path, sha256: str, owner: str) -> None:
        await self._answer()
        self.owned.add((sha256, owner))
        self.puts += 1
        data = b"".join([chunk async for chunk in packed_chunks(file)])
        if hashlib.sha256(data).hexdigest() != sha256:
            raise DataLoss("not what its hash promises")
        self.blobs[sha256] = data

    async def get(self, sha256: str, target: Path) -> int:
        if sha256 not in self.blobs:
            raise NotFound(f"no blob {sha256}")
        return await asyncio.to_thread(target.write_bytes, self.blobs[sha256])


class ScriptedExecutor(Executor):
    """Simulates the process of one run: `say` sends its messages, and the future `end` ends the run."""

    def __init__(self) -> None:
        self.heard: asyncio.Future[Sink] = asyncio.get_running_loop().create_future()
        self.end: asyncio.Future[resource_manager_pb2.RunEnded] = asyncio.get_running_loop().create_future()

    async def execute(self, run: NodeRun, heard: Sink) -> resource_manager_pb2.RunEnded:
        self.heard.set_result(heard)
        return await self.end

    async def say(self, request: application_pb2.AttachRequest) -> None:
        """Send a message as the process of the run."""
        (await self.heard)(request)
