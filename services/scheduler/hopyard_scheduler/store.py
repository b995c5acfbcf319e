"""Deleting what nobody needs any more from the snapshot store, behind everything else."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from hopyard.errors import HopyardError
from hopyard.v1 import appstat_pb2

if TYPE_CHECKING:
    from hopyard.v1 import appstat_pb2_grpc

_LOG = logging.getLogger(__name__)

MAX_AT_ONCE = 500


class SnapshotStore:
    """Deletes blobs in the background. One that stays because AppStat was away costs space, never a result."""

    def __init__(self, stub: appstat_pb2_grpc.AppStatServiceAsyncStub) -> None:
        self._stub = stub
        self._waiting: dict[tuple[str, str], None] = {}
        self._woken = asyncio.Event()

    def delete(self, experiment: str, sha256: str) -> None:
        """Queues a deletion."""
        self._waiting[experiment, sha256] = None
        self._woken.set()

    async def run(self) -> None:
        """Deletes until cancelled."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._waiting:
                batch = list(self._waiting)[:MAX_AT_ONCE]
                for key in batch:
                    del self._waiting[key]
                await self._delete(batch)

    async def _delete(self, batch: list[tuple[str, str]]) -> None:
        by_owner: dict[str, list[str]] = {}
        for owner, sha256 in batch:
            by_owner.setdefault(owner, []).append(sha256)
        for owner, hashes in by_owner.items():
            try:
                await self._stub.DeleteBlobs(appstat_pb2.DeleteBlobsRequest(owner=owner, sha256=hashes))
            except HopyardError as error:
                _LOG.warning("%d snapshots stay in the store: %s", len(hashes), error)
