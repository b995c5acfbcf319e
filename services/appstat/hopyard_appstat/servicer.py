"""AppStat's gRPC servicers: each handler converts the request, calls `Store` or `OwnedBlobs`, and converts the result.

The proto file documents requests and responses. The server turns exceptions into status codes.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from hopyard._net.auth import CallerKind, current_principal
from hopyard._net.auth.permissions import IMPORT_OWNER
from hopyard.errors import InvalidInput, PermissionDenied
from hopyard.v1 import appstat_pb2 as pb
from hopyard_appstat.blobs.backends import CHUNK_BYTES
from hopyard_appstat.database.blob_ownership import OwnedBlobs
from hopyard_appstat.database.deletion import StorageUse, StreamRows
from hopyard_appstat.database.store import Store
from hopyard_appstat.pagination import PageRequest
from hopyard_appstat.projections import Append, append_of
from hopyard_appstat.query_servicers import AppStatQueries, CatalogQueries, messages
from hopyard_appstat.rows import data_set_of, data_set_row, statistic_of
from hopyard_appstat.spool import Message, Spool

SERVICE: Final = "hopyard.v1.AppStatService"
SEARCH_PLAN: Final = "hopyard.v1.SearchPlanService"
CATALOG: Final = "hopyard.v1.CatalogService"

_HASHES: Final = 1000


class AppStatServicer(AppStatQueries):
    """The gRPC servicer of the journal, the statistics and the blobs.

    Args:
        store: The database.
        blobs: The blob store with the index of blobs.
        scratch: Folder for temporary files that buffer the messages of long requests and answers.
    """

    def __init__(self, store: Store, blobs: OwnedBlobs, scratch: Path) -> None:
        super().__init__(store, scratch)
        self._store = store
        self._blobs = blobs
        self._scratch = scratch

    async def BeginEpoch(self, request: pb.BeginEpochRequest, context: Any) -> pb.BeginEpochResponse:
        """Begin a new epoch of the scheduler, and return its number."""
        cluster, history = await self._store.identity()  # First: its error must not end the epoch of another scheduler.
        epoch = await self._store.begin_epoch(request.holder)
        return pb.BeginEpochResponse(epoch=epoch, cluster=cluster, history=history)

    async def AppendJournal(self, request: pb.AppendJournalRequest, context: Any) -> pb.AppendJournalResponse:
        """Append records to the journal and apply their projections in one transaction."""
        await self._store.append(append_of(request))
        return pb.AppendJournalResponse()

    async def ImportJournal(
        self, request_iterator: AsyncIterator[pb.ImportJournalRequest], context: Any
    ) -> pb.ImportJournalResponse:
        """Write complete streams that do not exist yet, in one transaction.

        Raises:
            InvalidInput: The last message is not marked as complete, so the call may have been interrupted.
        """
        spool = Spool(self._scratch)
        await self._write(spool, request_iterator, self._store.import_journal, "ImportJournal")
        return pb.ImportJournalResponse()

    async def ReplaceProjections(
        self, request_iterator: AsyncIterator[pb.ReplaceProjectionsRequest], context: Any
    ) -> pb.ReplaceProjectionsResponse:
        """Replace all rows that follow from the journals of streams, in one transaction.

        Raises:
            InvalidInput: The last message is not marked as complete, so the call may have been interrupted.
        """
        spool = Spool(self._scratch, pb.ReplaceProjectionsRequest)
        await self._write(spool, request_iterator, self._store.replace_projections, "ReplaceProjections")
        return pb.ReplaceProjectionsResponse()

    async def _write(
        self,
        spool: Spool,
        requests: AsyncIterator[Message],
        write: Callable[[Callable[[], Iterable[Append]]], Coroutine[Any, Any, None]],
        method: str,
    ) -> None:
        """Buffer the messages of a call in a file, and write them together.

        Args:
            spool: The file, which is closed in the end.
            requests: The messages.
            write: Writes the parts in one transaction.
            method: Name of the method, for the error message.
        """
        writing, complete = None, False
        try:
            async for request in requests:
                await asyncio.to_thread(spool.add, request)
                complete = request.complete
            if not complete:  # The end of an interrupted call looks like a normal end.
                raise InvalidInput(f"{method}: the last message does not say that it is complete; nothing is written")
            writing = asyncio.create_task(write(spool.parts), name=method)
            await asyncio.shield(writing)
        finally:
            if writing is None or writing.done():
                spool.close()
            else:  # The call was cancelled, and the writer still reads the file.
                writing.add_done_callback(spool.close_after)

    async def WatchStatistics(
        self, request: pb.WatchStatisticsRequest, context: Any
    ) -> AsyncIterator[pb.WatchStatisticsResponse]:
        """Stream statistics as they are committed. The first message is empty and means that every later commit will be sent."""
        watch = self._store.watch_statistics(request.experiment, request.job, replay=request.replay)
        async with aclosing(watch):
            async for batch in watch:
                yield pb.WatchStatisticsResponse(statistics=map(statistic_of, batch))

    async def PutBlob(self, request_iterator: AsyncIterator[pb.PutBlobRequest], context: Any) -> pb.PutBlobResponse:
        """Store a blob for an owner, and return its size."""
        sha256, owner, chunks = await _incoming(request_iterator)
        return pb.PutBlobResponse(size_bytes=await self._blobs.put(sha256, owner, chunks))

    async def GetBlob(self, request: pb.GetBlobRequest, context: Any) -> AsyncIterator[pb.GetBlobResponse]:
        """Stream the bytes of a blob."""
        async with aclosing(self._blobs.get(request.sha256)) as chunks:
            async for chunk in chunks:
                yield pb.GetBlobResponse(data=chunk)

    async def HasBlobs(self, request: pb.HasBlobsRequest, context: Any) -> pb.HasBlobsResponse:
        """Return those of the hashes whose blobs are stored, and make the request's owner an owner of them.

        If the request's owner is empty, no owner is added.
        With `owned`, return only those that already have this owner, and change nothing.
        """
        hashes = _bounded(request.sha256)
        if request.owned:
            return pb.HasBlobsResponse(sha256=await self._blobs.owned(hashes, request.owner))
        return pb.HasBlobsResponse(sha256=await self._blobs.has(hashes, request.owner, sizes_only=request.sizes_only))

    async def DeleteBlobs(self, request: pb.DeleteBlobsRequest, context: Any) -> pb.DeleteBlobsResponse:
        """Remove an owner from blobs, delete those that have no owner left, and return the hashes of these."""
        hashes = _bounded(request.sha256)
        return pb.DeleteBlobsResponse(
            sha256=await self._blobs.delete(hashes, request.owner, _seconds(request.unwanted_seconds))
        )

    async def ReleaseBlobs(self, request: pb.ReleaseBlobsRequest, context: Any) -> pb.ReleaseBlobsResponse:
        """Remove an owner from its blobs, and delete those that have no owner left. A repeated call is allowed.

        Without hashes in the request, all blobs of the owner are released. The response has number and bytes of the blobs that were
        deleted, and of those that stay because they have other owners. InvalidInput: there is no owner, or there are too many hashes.
        PermissionDenied: the caller is a user, and the owner is not an import.
        """
        if not request.owner:
            raise InvalidInput("owner: is required; it names whose blobs are released")
        if current_principal().kind is not CallerKind.SERVICE and not request.owner.startswith(IMPORT_OWNER):
            raise PermissionDenied(
                "owner: a user may release only the blobs of an import; `hopyard rm` deletes an experiment's"
            )
        gone = await self._blobs.release(request.owner, _bounded(request.sha256))
        return pb.ReleaseBlobsResponse(
            deleted=gone.own, deleted_bytes=gone.own_bytes, kept=gone.shared, kept_bytes=gone.shared_bytes
        )

    async def QueryStorage(self, request: pb.QueryStorageRequest, context: Any) -> pb.QueryStorageResponse:
        """Return the numbers of rows, and the bytes in the journal and in the store, of the streams of the request, in their order.

        InvalidInput: there are too many streams.
        """
        if len(request.streams) > _HASHES:
            raise InvalidInput(f"streams: found {len(request.streams)}, allowed are {_HASHES} in one call")
        wanted = [StreamRows(one.stream, tuple(one.experiments), tuple(one.bundles)) for one in request.streams]
        return pb.QueryStorageResponse(streams=map(_storage_message, await self._store.storage_of(wanted)))

    async def ListBlobs(self, request: pb.ListBlobsRequest, context: Any) -> pb.ListBlobsResponse:
        """Return a page of the index of blobs, each blob with its owners."""
        page = await self._blobs.list(PageRequest.of(request.page_size, request.page_token, "blobs"))
        return pb.ListBlobsResponse(blobs=messages(pb.BlobInfo, page.items), next_page_token=page.next_token)

    async def SweepBlobs(self, request: pb.SweepBlobsRequest, context: Any) -> pb.SweepBlobsResponse:
        """Delete partial uploads, and blobs that are not in the index; return how many.

        With `dry_run`, only count them. Objects in the store younger than `older_than_seconds` are kept. Blobs that may belong to
        another program are kept unless the request is `foreign`.
        """
        seconds = _seconds(request.older_than_seconds)
        swept = await self._blobs.sweep(dry_run=request.dry_run, older_than_seconds=seconds, foreign=request.foreign)
        return pb.SweepBlobsResponse(**asdict(swept))


class CatalogServicer(CatalogQueries):
    """The gRPC servicer of the data set catalog.

    Args:
        store: The database, which contains the catalog.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._store = store

    async def PutDataSet(self, request: pb.PutDataSetRequest, context: Any) -> pb.PutDataSetResponse:
        """Add a data set to the catalog, and return it as stored."""
        return pb.PutDataSetResponse(data=data_set_of(await self._store.put_data(data_set_row(request))))

    async def DeleteDataSet(self, request: pb.DeleteDataSetRequest, context: Any) -> pb.DeleteDataSetResponse:
        """Delete a data set with its partitions and replicas from the catalog, if it exists; files on nodes are kept."""
        await self._store.forget_data(request.name)
        return pb.DeleteDataSetResponse()


def _storage_message(use: StorageUse) -> pb.StreamStorage:
    return pb.StreamStorage(
        stream=use.stream,
        jobs=use.jobs,
        reports=use.reports,
        records=use.records,
        journal_bytes=use.journal_bytes,
        snapshots=use.blobs.own,
        snapshot_bytes=use.blobs.own_bytes,
        shared_snapshots=use.blobs.shared,
        shared_bytes=use.blobs.shared_bytes,
        shared_with=use.blobs.sharers,
        bundle_bytes=use.bundle_bytes,
    )


async def _incoming(requests: AsyncIterator[pb.PutBlobRequest]) -> tuple[str, str, AsyncIterator[bytes]]:
    """Return the hash and the owner from the first message of PutBlob, and an iterator over the blob's bytes in all messages.

    Raises:
        InvalidInput: There is no message. Later, from the iterator: a message has another hash or too many bytes.
    """
    first = await anext(requests, None)
    if first is None:
        raise InvalidInput("PutBlob: found no message, the first one says the sha256")

    async def chunks() -> AsyncIterator[bytes]:
        yield _chunk(first)
        async for request in requests:
            if request.sha256 not in ("", first.sha256):
                raise InvalidInput("PutBlob: a later message says another sha256; one call takes one blob")
            yield _chunk(request)

    return first.sha256, first.owner, chunks()


def _chunk(request: pb.PutBlobRequest) -> bytes:
    if len(request.data) > CHUNK_BYTES:
        raise InvalidInput(f"PutBlob: found a message with {len(request.data)} bytes, allowed are {CHUNK_BYTES}")
    return request.data


def _seconds(given: float) -> float:
    if not 0 <= given < math.inf:
        raise InvalidInput(f"seconds: found {given}, allowed are 0 or more")
    return given


def _bounded(hashes: Any) -> tuple[str, ...]:
    if len(hashes) > _HASHES:
        raise InvalidInput(f"sha256: found {len(hashes)} hashes, allowed are {_HASHES} in one call")
    return tuple(hashes)
