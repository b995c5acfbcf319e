"""The asynchronous interface of the database. Rows are dicts; database work runs in threads and does not block the event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Final

from sqlalchemy.exc import DBAPIError

from hopyard_appstat.change_notifier import WatcherSignals
from hopyard_appstat.database import deletion, queries
from hopyard_appstat.database.connections import Database
from hopyard_appstat.database.deletion import StorageUse, StreamRows
from hopyard_appstat.database.store_reader import StoreReader
from hopyard_appstat.database.writer import Writer
from hopyard_appstat.projections import Append
from hopyard_appstat.rows import Row

_log = logging.getLogger(__name__)

_WATCH_BATCH: Final = 500

_FOLD_SECONDS: Final = 1.0
"""Interval between WAL checkpoints in seconds."""


class Store(StoreReader):
    """Reads and writes the journal, statistics, projections, index of blobs, data set catalog and search plan in the database.

    Create an instance, run `run` as a background task while it is used, then `close`, await the task, and `release`.

    Args:
        database: An open database with the newest schema.
        wall_clock: Returns seconds since the Unix epoch.
    """

    def __init__(self, database: Database, *, wall_clock: Callable[[], float] = time.time) -> None:
        super().__init__(database.reader)
        self._database = database
        self._wakes = WatcherSignals()
        self._writer = Writer(database.writer, on_commit=self._wakes.wake, wall_clock=wall_clock)

    @property
    def commits(self) -> int:
        """Number of transactions committed since this instance was created."""
        return self._writer.commits

    async def run(self) -> None:
        """Commit writes, and run WAL checkpoints, until `close` is called and all pending writes are committed."""
        folding = asyncio.create_task(self._fold(), name="folding")
        try:
            await self._writer.run()
        finally:
            folding.cancel()
            await asyncio.gather(folding, return_exceptions=True)

    def end_watches(self) -> None:
        """End all watches: each raises `Unavailable` to its client. Call it first when the service stops."""
        self._wakes.close()

    async def close(self) -> None:
        """End watches and refuse new writes. `run` ends when the pending writes are committed."""
        self.end_watches()
        await self._writer.close()

    def release(self) -> None:
        """Close all threads and database connections. Call it after `run` has ended."""
        self._writer.release()
        super().release()
        self._database.close()

    # ------------------------------------------------------------------------------------------------------- writing

    async def identity(self) -> tuple[str, str]:
        """Return the id of the cluster to which the database belongs, and the id of its history."""
        return await self._read(queries.identity_of)

    async def begin_epoch(self, holder: str) -> int:
        """Begin a new epoch of the scheduler, and return its number, which is larger than all earlier ones.

        From then on, writes with an earlier epoch are refused. `holder` describes the scheduler, for error messages.
        """
        return await self._writer.do(lambda transaction: transaction.begin_epoch(holder))

    async def append(self, append: Append) -> None:
        """Append records to the journal and apply their projections in one transaction. On return the transaction is committed.

        A batch that is already in the journal, because the call is repeated, changes nothing.

        Raises:
            StaleEpoch: A newer epoch has begun.
            Conflict: The epoch was never begun.
            InvalidInput: The records are not contiguous, or a value is out of range.
            Aborted: The batch does not begin at the next position of a stream, and is not already in the journal.
        """
        await self._writer.do(lambda transaction: transaction.append(append))

    async def import_journal(self, parts: Callable[[], Iterable[Append]]) -> None:
        """Write complete streams that do not exist yet, with their projections, in one transaction, which is committed on return.

        If the streams exist already with the same records, because the call is repeated, nothing changes.

        Args:
            parts: Returns an iterator over the parts of the import, in order. It is called several times, in the writer's thread, and
                each call starts at the first part.

        Raises:
            StaleEpoch, Conflict, InvalidInput: As in `append`.
            Aborted: One of the streams exists with other records.
        """
        await self._writer.do(lambda transaction: transaction.import_journal(parts))

    async def replace_projections(self, parts: Callable[[], Iterable[Append]]) -> None:
        """Delete all rows that follow from the journals of streams, and write the given ones, in one transaction, committed on return.

        Args:
            parts: As in `import_journal`.

        Raises:
            StaleEpoch, Conflict, InvalidInput: As in `append`.
            Aborted: A stream has another length than the request says.
        """
        await self._writer.do(lambda transaction: transaction.replace_projections(parts))

    async def own_blobs(self, owner: str, sizes: Mapping[str, int]) -> None:
        """Add an owner to blobs, and record the current time as the time of their last use. Blobs that are new to the index are added.

        Args:
            owner: The owner.
            sizes: Size of each blob in bytes, by hash.
        """
        await self._writer.do(lambda transaction: transaction.own_blobs(owner, sizes))

    async def disown_blobs(self, owner: str, hashes: tuple[str, ...], unwanted_seconds: float = 0.0) -> tuple[str, ...]:
        """Remove an owner from blobs, remove the blobs that have no owner left from the index, and return the hashes of these.

        The bytes of the blobs are not deleted here.

        Args:
            owner: The owner to remove.
            hashes: Hashes of the blobs.
            unwanted_seconds: Blobs for which `own_blobs` was called less than this number of seconds ago stay unchanged and keep the
                owner; 0: no blob is excepted.
        """
        return await self._writer.do(lambda transaction: transaction.disown_blobs(owner, hashes, unwanted_seconds))

    async def put_data(self, data: Row) -> Row:
        """Add a data set to the catalog, and return it as stored. If the data set was added with the same request id, change nothing.

        Raises:
            AlreadyExists: Another request added a data set of this name.
            InvalidInput: The name or the request id is empty, or a partition has two replicas on one node.
        """
        return await self._writer.do(lambda transaction: transaction.put_data(data))

    async def forget_data(self, name: str) -> None:
        """Delete a data set with its partitions and replicas from the catalog, if it exists; files on nodes are kept."""
        await self._writer.do(lambda transaction: transaction.forget_data(name))

    # ------------------------------------------------------------------------------------------------------- reading

    async def blobs_of_owner(self, owner: str, hashes: tuple[str, ...] = ()) -> tuple[dict[str, int], dict[str, int]]:
        """Return the sizes in bytes of the blobs of an owner by hash: first of those without, then of those with another owner.

        Args:
            owner: The owner.
            hashes: Hashes of the blobs to consider; empty: all blobs of the owner.
        """
        return await self._read(deletion.blobs_of_owner, owner, hashes)

    async def storage_of(self, wanted: Sequence[StreamRows]) -> list[StorageUse]:
        """Return the storage that each of the streams `wanted` uses, in their order. A stream that does not exist uses none."""
        return await self._read(deletion.storage_of, wanted)

    async def watch_statistics(
        self, experiment: str, job: str, *, replay: bool
    ) -> AsyncGenerator[tuple[Row, ...], None]:
        """Yield batches of statistics as they are committed, in commit order, without end.

        Args:
            experiment: Id of the experiment, which need not exist yet.
            job: Id of the job; empty: all jobs.
            replay: Whether to start with the statistics that already exist.

        Yields:
            First an empty batch, as the sign that every later commit will be yielded. Then batches that are not empty. A slow reader
            gets larger batches and misses nothing.

        Raises:
            Unavailable: The service is stopping.
        """
        with self._wakes.subscribe(experiment) as wake:
            cursor = 0 if replay else await self._read(queries.newest_row, experiment)
            yield ()
            while True:
                wake.arm()
                before = cursor
                batch, cursor = await self._read(queries.statistics_after, experiment, job, cursor, _WATCH_BATCH)
                if batch:
                    yield batch
                elif cursor == before:
                    await wake.wait()

    async def _fold(self) -> None:
        folded = 0
        while True:
            await asyncio.sleep(_FOLD_SECONDS)
            if self.commits == folded:
                continue
            folded = self.commits
            try:
                await asyncio.get_running_loop().run_in_executor(self._threads, self._database.fold)
            except DBAPIError as error:
                _log.warning("the WAL checkpoint failed and is retried after the next commit: %s", error.orig)
