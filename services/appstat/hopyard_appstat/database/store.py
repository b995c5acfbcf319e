"""The database as an asynchronous interface: rows in and out, without blocking the event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, OperationalError

from hopyard.errors import InvalidInput, Unavailable
from hopyard_appstat.change_notifier import Wakes
from hopyard_appstat.database import datasets, queries, search_plan
from hopyard_appstat.database.connections import READERS, Database
from hopyard_appstat.database.search_plan import NodeDetails
from hopyard_appstat.database.writer import Writer
from hopyard_appstat.pagination import Page, Paging
from hopyard_appstat.projections import Append
from hopyard_appstat.rows import Row

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_WATCH_BATCH: Final = 500

_FOLD_SECONDS: Final = 1.0
"""Interval between WAL checkpoints in seconds."""


class Store:
    """The journal, statistics, blob index, catalog and search plan.

    `run` must run as a background task while the store is used.

    Args:
        database: An open database with the newest schema.
        wall_clock: Returns seconds since the epoch.
    """

    def __init__(self, database: Database, *, wall_clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._wakes = Wakes()
        self._writer = Writer(database.writer, on_commit=self._wakes.wake, wall_clock=wall_clock)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="appstat-reader")

    @property
    def commits(self) -> int:
        """The number of transactions committed since the start."""
        return self._writer.commits

    async def run(self) -> None:
        """Commits writes until `close`."""
        folding = asyncio.create_task(self._fold(), name="folding")
        try:
            await self._writer.run()
        finally:
            folding.cancel()
            await asyncio.gather(folding, return_exceptions=True)

    def end_watches(self) -> None:
        """Ends all watches with `Unavailable`. Call it first when the service stops."""
        self._wakes.close()

    async def close(self) -> None:
        """Ends watches and refuses new writes; `run` ends when the pending writes are committed."""
        self.end_watches()
        await self._writer.close()

    def release(self) -> None:
        """Closes threads and connections. Call it after `run` has ended."""
        self._writer.release()
        self._readers.shutdown()
        self._database.close()

    # ------------------------------------------------------------------------------------------------------- writing

    async def begin_epoch(self, holder: str) -> int:
        """Begins a new epoch and returns its number, which is larger than all earlier ones."""
        return await self._writer.do(lambda transaction: transaction.begin_epoch(holder))

    async def append(self, append: Append) -> None:
        """Appends records and applies their projections in one transaction, which is committed on return.

        Raises:
            StaleEpoch: A newer epoch has begun.
            Conflict: The epoch was never begun.
            InvalidInput: The records are not contiguous, or a value is out of range.
            Aborted: The batch does not begin at the next position of a stream, and is not already in the journal.
        """
        await self._writer.do(lambda transaction: transaction.append(append))

    async def import_journal(self, parts: Callable[[], Iterable[Append]]) -> None:
        """Writes streams that do not exist yet, with their projections, in one transaction, which is committed on return.

        Args:
            parts: Returns the parts from the first one at each call; called in the writer's thread.

        Raises:
            StaleEpoch, Conflict, InvalidInput: As `append`.
            Aborted: One of the streams exists with other records.
        """
        await self._writer.do(lambda transaction: transaction.import_journal(parts))

    async def own_blobs(self, owner: str, sizes: Mapping[str, int]) -> None:
        """Adds blobs (sizes in bytes by hash) to the index, with an owner and the present time."""
        await self._writer.do(lambda transaction: transaction.own_blobs(owner, sizes))

    async def disown_blobs(self, owner: str, hashes: tuple[str, ...], unwanted_seconds: float = 0.0) -> tuple[str, ...]:
        """Removes an owner from blobs; removes blobs without owners from the index and returns their hashes.

        Blobs that an owner put or asked for within the last `unwanted_seconds` are not changed.
        """
        return await self._writer.do(lambda transaction: transaction.disown_blobs(owner, hashes, unwanted_seconds))

    async def put_data(self, data: Row) -> Row:
        """Adds a data set to the catalog and returns it as stored. A repeated request changes nothing.

        Raises:
            AlreadyExists: Another request added a data set of this name.
            InvalidInput: The name or the request id is empty, or a partition has two replicas on one node.
        """
        return await self._writer.do(lambda transaction: transaction.put_data(data))

    async def forget_data(self, name: str) -> None:
        """Deletes a data set from the catalog, if it exists."""
        await self._writer.do(lambda transaction: transaction.forget_data(name))

    # ------------------------------------------------------------------------------------------------------- reading

    async def read_journal(self, stream: str, first: int = 1) -> AsyncGenerator[tuple[Row, ...], None]:
        """Yields the records of a stream from position `first` (0 counts as 1) to its present end, in parts of about 1 MiB.

        Raises:
            InvalidInput: The position is negative.
        """
        if first < 0:
            raise InvalidInput(f"from_position: found {first}, allowed is 0 or more")
        last = await self._read(queries.length_of, stream)
        position = max(1, first)
        while position <= last:
            records = await self._read(queries.journal_part, stream, position, last)
            yield records
            position = records[-1]["position"] + 1

    async def list_streams(self, paging: Paging) -> Page[Row]:
        """Returns a page of the streams by name."""
        return await self._read(queries.stream_page, paging)

    async def query_statistics(self, experiment: str, job: str, paging: Paging) -> Page[Row]:
        """Returns a page of statistics sorted by (job, position, part); an empty `job` means all jobs."""
        return await self._read(queries.statistics_page, experiment, job, paging)

    async def query_experiments(self, state: str, paging: Paging) -> Page[Row]:
        """Returns a page of experiments, newest first; an empty `state` means all states."""
        return await self._read(queries.experiments_page, state, paging)

    async def query_jobs(self, experiment: str, paging: Paging) -> Page[Row]:
        """Returns a page of the jobs of an experiment, in order of creation."""
        return await self._read(queries.jobs_page, experiment, paging)

    async def query_scaling(self, training: str, paging: Paging) -> Page[Row]:
        """Returns a page of the scaling measurements of a training, by hardware and number of slots."""
        return await self._read(queries.scaling_page, training, paging)

    async def query_data(self, name: str, paging: Paging) -> Page[Row]:
        """Returns a page of data sets by name; an empty `name` means all."""
        return await self._read(datasets.data_page, name, paging)

    async def list_plan_nodes(self, root: str, paging: Paging) -> Page[Row]:
        """Returns a page of the search plan's nodes with this root, by start position."""
        return await self._read(search_plan.nodes_page, root, paging)

    async def plan_node(self, key: str) -> NodeDetails:
        """Returns a node of the search plan without its results.

        Raises:
            NotFound: The node does not exist.
        """
        return await self._read(search_plan.node_details, key)

    async def plan_results(self, key: str, paging: Paging) -> Page[Row]:
        """Returns a page of the results of a node, by position."""
        return await self._read(search_plan.results_page, key, paging)

    async def list_blobs(self, paging: Paging) -> Page[Row]:
        """Returns a page of the blob index by hash, each blob with its owners."""
        return await self._read(queries.blobs_page, paging)

    async def known_blobs(self, hashes: tuple[str, ...]) -> set[str]:
        """Returns those of the hashes that are in the index."""
        return await self._read(queries.blobs_known, hashes)

    async def owned_blobs(self, owner: str, hashes: tuple[str, ...]) -> set[str]:
        """Returns those of the hashes that the owner owns."""
        return await self._read(queries.blobs_owned, owner, hashes)

    async def watch_statistics(
        self, experiment: str, job: str, *, replay: bool
    ) -> AsyncGenerator[tuple[Row, ...], None]:
        """Yields statistics as they are committed, in commit order, without end.

        Args:
            experiment: Id of the experiment, which need not exist yet.
            job: Id of the job; empty: all jobs.
            replay: Whether to begin with the statistics that already exist.

        Yields:
            First an empty batch: every later commit will be yielded. Then non-empty batches. A slow reader receives
                larger batches and misses nothing.

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
                await asyncio.get_running_loop().run_in_executor(self._readers, self._database.fold)
            except DBAPIError as error:
                _log.warning("the WAL checkpoint failed and is retried after the next commit: %s", error.orig)

    async def _read(self, query: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        def read() -> T:
            with self._database.reader.begin() as connection:
                return query(connection, *args, **kwargs)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, read)
        except OperationalError as error:
            raise Unavailable(f"the database cannot be read just now: {error.orig}") from error
