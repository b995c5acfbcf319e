"""The client of AppStat's blob store, for snapshots in packed form and code bundles."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from hopyard._net.rpc import Channel
from hopyard._runtime.snapshot_file import SnapshotFileError
from hopyard._runtime.snapshot_folder import open_packed
from hopyard.errors import DataLoss, Internal, Unavailable
from hopyard.v1 import appstat_pb2, appstat_pb2_grpc, experiment_pb2, experiment_pb2_grpc
from hopyard_nodeagent.cluster_access import ClusterAccess
from hopyard_nodeagent.snapshots.transfers import IDLE_SECONDS, in_time, patience, read_chunks, receive_file

_AT_ONCE: Final = 1000
_SOURCE: Final = "the snapshot store"
_ENDED_MEANWHILE: Final = "Internal error from Core"
"""gRPC's error message if the server ends a call while a request is being sent; the server's own status may be lost then."""


class BlobClient:
    """Reads and writes blobs in AppStat. All methods may raise errors of `hopyard.errors`, such as Unavailable.

    The connection is opened at the first call.

    Args:
        appstat: Address of AppStat; None: ask the scheduler at the first call.
        access: Opens the connections.
        idle_seconds: Time in seconds without progress after which a transfer is abandoned.
        storing_seconds: Maximum time in seconds for AppStat to store a blob after it was sent completely, or to verify one.
    """

    def __init__(
        self,
        appstat: str | None,
        access: ClusterAccess,
        *,
        idle_seconds: float = IDLE_SECONDS,
        storing_seconds: float = 10 * IDLE_SECONDS,
    ) -> None:
        self._idle_seconds = idle_seconds
        self._storing_seconds = storing_seconds
        self._address = appstat
        self._access = access
        self._channel: Channel | None = None
        self._appstat: appstat_pb2_grpc.AppStatServiceAsyncStub | None = None
        self._opening = asyncio.Lock()

    async def close(self) -> None:
        """Close the connection to AppStat."""
        if self._channel is not None:
            await self._channel.close()

    async def has(self, sha256: str, owner: str) -> bool:
        """Return whether a blob is stored and undamaged. If it is, make `owner` an owner of the blob.

        AppStat may have to read the whole blob. A call after `TimedOut` waits for the same reading to end.
        """
        stub = await self._stub()
        request = appstat_pb2.HasBlobsRequest(sha256=[sha256], owner=owner)
        return sha256 in (await stub.HasBlobs(request, timeout=self._storing_seconds)).sha256

    async def stored(self, hashes: Sequence[str], owner: str = "") -> set[str]:
        """Return those of the hashes whose blobs are stored; with an `owner`, only those that it owns. Owners do not change."""
        stub = await self._stub()
        found: set[str] = set()
        for start in range(0, len(hashes), _AT_ONCE):
            part = hashes[start : start + _AT_ONCE]
            request = appstat_pb2.HasBlobsRequest(sha256=part, owner=owner, owned=bool(owner))
            found.update((await stub.HasBlobs(request)).sha256)
        return found

    async def put(self, snapshot: Path, sha256: str, owner: str) -> None:
        """Upload a snapshot in packed form, for an owner.

        Args:
            snapshot: A packed file, or a folder, which is packed while it is sent.
            sha256: Hash of the packed form.
            owner: The owner of the blob, an experiment's id.

        Raises:
            DataLoss: The snapshot is damaged: its bytes do not match the hash, or it is neither a folder nor a file.
            TimedOut: The store made no progress for too long.
            Unavailable: The store cannot be reached, or ended the transfer early; a retry may show the cause.
            FileNotFoundError: The file or folder does not exist.
        """
        loop = asyncio.get_running_loop()
        limit = asyncio.timeout(self._idle_seconds)
        unread: list[Exception] = []

        async def requests() -> AsyncIterator[appstat_pb2.PutBlobRequest]:
            # gRPC requests the next chunk as soon as the store has room for it.
            first: dict[str, str] = {"sha256": sha256, "owner": owner}
            try:
                async for data in read_chunks(opened):
                    limit.reschedule(loop.time() + self._idle_seconds)
                    yield appstat_pb2.PutBlobRequest(data=data, **first)
                    first = {}
            except SnapshotFileError as error:
                unread.append(DataLoss(f"snapshot {sha256} is damaged on this node: {error}"))
                raise
            except OSError as error:
                unread.append(error)
                raise
            limit.reschedule(loop.time() + self._storing_seconds)

        stub = await self._stub()
        try:
            # Opened outside the generator, because gRPC does not run the generator to its end if the store responds early.
            opened = open_packed(snapshot)
        except SnapshotFileError as error:
            raise DataLoss(f"snapshot {sha256} is damaged on this node: {error}") from error
        call = stub.PutBlob(requests())
        try:
            async with patience(limit, _SOURCE):
                await call
        except asyncio.CancelledError:
            if unread:  # gRPC then cancels the call without the reason.
                raise unread[0] from None
            raise
        except Internal as error:
            if str(error) != _ENDED_MEANWHILE:
                raise
            raise Unavailable(f"{_SOURCE} ended the transfer before it had everything") from error
        finally:
            call.cancel()
            opened.close()

    async def get(self, sha256: str, target: Path) -> int:
        """Download a blob to the file `target`, and return its size in bytes. The file appears when it is complete and verified.

        Raises:
            NotFound: The blob is not stored.
            DataLoss: The received bytes do not match the hash.
            TimedOut: The store sent nothing for too long.
        """
        stub = await self._stub()

        async def chunks() -> AsyncIterator[bytes]:
            call = stub.GetBlob(appstat_pb2.GetBlobRequest(sha256=sha256))
            try:
                async for response in call:
                    yield response.data
            finally:
                call.cancel()

        return await receive_file(in_time(chunks(), self._idle_seconds, _SOURCE), target, sha256, _SOURCE)

    async def _stub(self) -> appstat_pb2_grpc.AppStatServiceAsyncStub:
        async with self._opening:
            if self._appstat is None:
                address = self._address or await self._ask_scheduler()
                self._channel = self._access.to_service(address)
                self._appstat = appstat_pb2_grpc.AppStatServiceStub(self._channel)
            return self._appstat

    async def _ask_scheduler(self) -> str:
        async with await self._access.to_scheduler() as connection:
            stub = experiment_pb2_grpc.ExperimentServiceStub(connection)
            cluster = await stub.GetCluster(experiment_pb2.GetClusterRequest())
        if not cluster.appstat_address:
            raise Unavailable(f"the scheduler at {self._access.scheduler} does not know where AppStat is")
        return cluster.appstat_address
