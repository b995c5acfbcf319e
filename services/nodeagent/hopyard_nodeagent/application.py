"""The gRPC servicer of ApplicationService: the agent's service for its training processes.

It listens on a Unix socket only. Each process authenticates with its own token.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import grpc.aio

from hopyard._net.auth import current_principal
from hopyard._runtime.application.state import load_folder, save_entry
from hopyard._runtime.snapshot_file import SnapshotFileInfo
from hopyard.errors import DataLoss, NotFound
from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import application_pb2_grpc, common_pb2
from hopyard_nodeagent.runs.slots import Slots
from hopyard_nodeagent.runs.training_process import Runner
from hopyard_nodeagent.snapshots.transfers import packed_chunks, receive_named_by_hash

SERVICE: Final = "hopyard.v1.ApplicationService"


class ApplicationServicer(application_pb2_grpc.ApplicationServiceServicer):
    """Serves the training processes of this agent: their connection (Attach), and RPCs that save and load snapshots of their jobs.

    Args:
        slots: The slots whose training processes are served.
        snapshot_folder: Folder in which saved snapshots are stored, named by their hashes.
    """

    def __init__(self, slots: Slots, snapshot_folder: Path) -> None:
        self._slots = slots
        self._snapshot_folder = snapshot_folder

    async def Attach(  # type: ignore[override]  # noqa: D102
        self,
        request_iterator: AsyncIterator[wire.AttachRequest],
        context: grpc.aio.ServicerContext[wire.AttachRequest, wire.AttachResponse],
    ) -> None:
        runner = await self._runner()
        await runner.attach(request_iterator, context.write)

    async def SaveState(  # noqa: D102
        self,
        request_iterator: AsyncIterator[wire.SaveStateRequest],
        context: grpc.aio.ServicerContext[wire.SaveStateRequest, wire.SaveStateResponse],
    ) -> wire.SaveStateResponse:
        runner = await self._runner()
        job = runner.start.run.job
        first = await anext(request_iterator, wire.SaveStateRequest())

        async def chunks() -> AsyncIterator[bytes]:
            yield first.data
            async for request in request_iterator:
                yield request.data

        if first.path:
            info = await asyncio.to_thread(save_entry, Path(first.path), self._snapshot_folder)
        else:
            arrived = await receive_named_by_hash(chunks(), self._snapshot_folder)
            info = SnapshotFileInfo(arrived.sha256, arrived.size)
        snapshot = common_pb2.Snapshot(
            job=job, position=first.position, sha256=info.sha256, size_bytes=info.size, provider="framework"
        )
        return wire.SaveStateResponse(snapshot=snapshot)

    async def LoadState(  # noqa: D102
        self, request: wire.LoadStateRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[wire.LoadStateResponse]:
        start = (await self._runner()).start
        if not start.snapshot_file:
            raise NotFound(f"the run of job {start.run.job} starts from scratch: there is no state to load")
        snapshot, sha256 = Path(start.snapshot_file), start.start.snapshot.sha256
        if request.folder:
            await asyncio.to_thread(load_folder, snapshot, sha256, Path(request.folder))
            return
        found = hashlib.sha256()
        async for data in packed_chunks(snapshot):
            found.update(data)
            yield wire.LoadStateResponse(data=data)
        if found.hexdigest() != sha256:
            raise DataLoss(f"snapshot {sha256} is damaged: its bytes have the hash {found.hexdigest()}")

    async def _runner(self) -> Runner:
        return await self._slots.runner_of(current_principal())
