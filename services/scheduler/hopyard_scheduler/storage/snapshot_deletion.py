"""Deletion from the store of snapshots that their experiments no longer need."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hopyard._net.rpc import retry
from hopyard.errors import HopyardError, Unavailable
from hopyard.v1 import appstat_pb2
from hopyard_engine.core.effects import ForgetSnapshot

if TYPE_CHECKING:
    from hopyard.v1 import appstat_pb2_grpc

_LOG = logging.getLogger(__name__)

MAX_AT_ONCE = 1000


class SnapshotStore:
    """Deletes from the store the snapshots that the engine no longer needs.

    The engine names them in effects of the type `ForgetSnapshot`. They are deleted after the batch with these effects
    is journalled: this class removes the stream as owner of the snapshot, and AppStat deletes a snapshot without
    owners.

    Args:
        stub: Client of AppStat.
    """

    def __init__(self, stub: appstat_pb2_grpc.AppStatServiceAsyncStub) -> None:
        self._stub = stub

    async def delete(self, effects: Iterable[ForgetSnapshot]) -> None:
        """Remove streams as owners of the snapshots that they released. Retry while AppStat is unavailable; log other errors.

        It must return before the acknowledgements of the same batch are sent. Reason: training is deterministic, so a
        repeated run produces a snapshot with the same hash, and its agent uploads it only after the acknowledgement. A
        later deletion would delete that new upload.

        Args:
            effects: Snapshots and their streams. Those that the store does not have are ignored.
        """
        by_owner: dict[str, list[str]] = {}
        for effect in effects:
            if effect.stored:
                by_owner.setdefault(effect.stream, []).append(effect.sha256)
        for owner, hashes in by_owner.items():
            for start in range(0, len(hashes), MAX_AT_ONCE):
                await self._delete(owner, hashes[start : start + MAX_AT_ONCE])

    async def _delete(self, owner: str, hashes: list[str]) -> None:
        request = appstat_pb2.DeleteBlobsRequest(owner=owner, sha256=hashes)
        try:
            await retry(lambda: self._stub.DeleteBlobs(request), deadline=None, on_failure=_waiting)
        except HopyardError as error:
            _LOG.warning("%d snapshots of %s stay in the store: %s", len(hashes), owner, error)


def _waiting(error: Unavailable, wait: float) -> None:
    _LOG.warning("appstat is away (%s), trying again in %.1f s", error, wait)
