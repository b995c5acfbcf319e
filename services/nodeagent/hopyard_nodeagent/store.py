"""The agent's use of AppStat: packed snapshots and code bundles by hash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from hopyard.errors import Unavailable
from hopyard.rpc import Channel, channel
from hopyard.v1 import appstat_pb2, appstat_pb2_grpc, experiment_pb2, experiment_pb2_grpc
from hopyard_nodeagent.transfers import file_chunks, receive_file


class Store:
    """Blobs in AppStat. All calls raise `hopyard.errors`."""

    def __init__(self, appstat: str | None, scheduler: str) -> None:
        """Use the AppStat at this address; None: the one that the scheduler names when it is first needed."""
        self._address = appstat
        self._scheduler = scheduler
        self._channel: Channel | None = None
        self._opening = asyncio.Lock()

    async def close(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            await self._channel.close()

    async def has(self, sha256: str, owner: str) -> bool:
        """Whether it is there; then the owner needs it from now on."""
        stub = await self._stub()
        request = appstat_pb2.HasBlobsRequest(sha256=[sha256], owner=owner)
        return sha256 in (await stub.HasBlobs(request)).sha256

    async def put(self, file: Path, sha256: str, owner: str) -> None:
        """Put a file that an owner needs.

        Raises:
            DataLoss: the file does not have the hash.
            FileNotFoundError: there is no such file.
        """

        async def requests() -> AsyncIterator[appstat_pb2.PutBlobRequest]:
            first: dict[str, str] = {"sha256": sha256, "owner": owner}
            async for data in file_chunks(file):
                yield appstat_pb2.PutBlobRequest(data=data, **first)
                first = {}

        stub = await self._stub()
        call = stub.PutBlob()
        # A store that has the bytes already may answer before it was sent all of them.
        with suppress(asyncio.InvalidStateError):
            async for request in requests():
                await call.write(request)
            await call.done_writing()
        await call

    async def get(self, sha256: str, target: Path) -> None:
        """Get a blob into a file, which appears whole or not at all.

        Raises:
            NotFound: it is not there.
            DataLoss: what arrived does not have the hash.
        """
        stub = await self._stub()

        async def chunks() -> AsyncIterator[bytes]:
            async for response in stub.GetBlob(appstat_pb2.GetBlobRequest(sha256=sha256)):
                yield response.data

        await receive_file(chunks(), target, sha256, "the snapshot store")

    async def _stub(self) -> appstat_pb2_grpc.AppStatServiceAsyncStub:
        async with self._opening:
            if self._address is None:
                self._address = await self._ask_scheduler()
            if self._channel is None:
                self._channel = channel(self._address)
        return appstat_pb2_grpc.AppStatServiceStub(self._channel)

    async def _ask_scheduler(self) -> str:
        async with channel(self._scheduler) as connection:
            stub = experiment_pb2_grpc.ExperimentServiceStub(connection)
            cluster = await stub.GetCluster(experiment_pb2.GetClusterRequest())
        if not cluster.appstat_address:
            raise Unavailable(f"the scheduler at {self._scheduler} does not know where AppStat is")
        return cluster.appstat_address
