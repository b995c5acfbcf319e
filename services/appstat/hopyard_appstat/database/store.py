"""The database as the servicer sees it: rows in and out, nothing blocks the event loop."""

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
"""How often what was committed is folded into the database file."""


class Store:
    """Journal, statistics and the index of blobs.

    `run` must run as a background task while the store is used.

    Args:
        database: Opened and migrated.
        wall_clock: Seconds since the epoch.
    """

    def __init__(self, database: Database, *, wall_clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._wakes = Wakes()
        self._writer = Writer(database.writer, on_commit=self._wakes.wake, wall_clock=wall_clock)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="appstat-reader")

    @property
    def commits(self) -> int:
        """How many transactions were committed since the start."""
        return self._writer.commits

    async def run(self) -> None:
        """Write what comes, until `close`."""
        folding = asyncio.create_task(self._fold(), name="folding")
        try:
            await self._writer.run()
        finally:
            folding.cancel()
            await asyncio.gather(folding, return_exceptions=True)

    def end_watches(self) -> None:
        """End all watches with `Unavailable`: the first step of a stop."""
        self._wakes.close()

    async def close(self) -> None:
        """Refuse new writes; `run` ends when those that wait are committed."""
        self.end_watches()
        await self._writer.close()

    def release(self) -> None:
        """Give back threads and connections, after `run` has ended."""
        self._writer.release()
        self._readers.shutdown()
        self._database.close()

    # ------------------------------------------------------------------------------------------------------- writing

    async def begin_epoch(self, holder: str) -> int:
        """Begin a new epoch, larger than every one before; answers it."""
        return await self._writer.do(lambda transaction: transaction.begin_epoch(holder))

    async def append(self, append: Append) -> None:
        """Append records and apply their projections, all or none; committed when this returns.

        Raises:
            StaleEpoch: A newer epoch has begun.
            Conflict: The epoch was never begun.
            InvalidInput: The records are not contiguous, or a value is out of range.
            Aborted: A stream does not stand where the batch begins, and the batch is not there already.
        """
        await self._writer.do(lambda transaction: transaction.append(append))

    async def import_journal(self, parts: Callable[[], Iterable[Append]]) -> None:
        """Write streams that are not there yet, with their projections, all or none; committed when this returns.

        Args:
            parts: Each call begins anew with the first; called in the writer's thread.

        Raises:
            StaleEpoch, Conflict, InvalidInput: As `append`.
            Aborted: One of the streams is there with other records.
        """
        await self._writer.do(lambda transaction: transaction.import_journal(parts))

    async def own_blobs(self, owner: str, sizes: Mapping[str, int]) -> None:
        """Note that the blob store has these blobs (sizes in bytes by hash) and that an owner needs them."""
        await self._writer.do(lambda transaction: transaction.own_blobs(owner, sizes))

    async def disown_blobs(self, owner: str, hashes: tuple[str, ...], unwanted_seconds: float = 0.0) -> tuple[str, ...]:
        """Note that an owner needs these blobs no more; answers those that nobody needs.

        Those that were put or asked for within `unwanted_seconds` stay as they are.
        """
        return await self._writer.do(lambda transaction: transaction.disown_blobs(owner, hashes, unwanted_seconds))

    async def put_data(self, data: Row) -> Row:
        """Keep a data set of the catalog; answers it as it is kept.

        Raises:
            AlreadyExists: Another request has kept one of this name.
            InvalidInput: It has no name or no request id.
        """
        return await self._writer.do(lambda transaction: transaction.put_data(data))

    async def forget_data(self, name: str) -> None:
        """Forget a data set; one that is not there counts as forgotten."""
        await self._writer.do(lambda transaction: transaction.forget_data(name))

    # ------------------------------------------------------------------------------------------------------- reading

    async def read_journal(self, stream: str, first: int = 1) -> AsyncGenerator[tuple[Row, ...], None]:
        """The stream's records from position `first` (0 counts as 1) up to its present end, in parts of about 1 MiB.

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
        """The streams by name."""
        return await self._read(queries.stream_page, paging)

    async def query_statistics(self, experiment: str, job: str, paging: Paging) -> Page[Row]:
        """Statistics by (job, position, part); `job` empty: of all jobs."""
        return await self._read(queries.statistics_page, experiment, job, paging)

    async def query_experiments(self, state: str, paging: Paging) -> Page[Row]:
        """Experiments, newest first; `state` empty: in any state."""
        return await self._read(queries.experiments_page, state, paging)

    async def query_jobs(self, experiment: str, paging: Paging) -> Page[Row]:
        """Jobs of an experiment in order of creation."""
        return await self._read(queries.jobs_page, experiment, paging)

    async def query_scaling(self, training: str, paging: Paging) -> Page[Row]:
        """What was measured of a training, by kind of host and number of slots."""
        return await self._read(queries.scaling_page, training, paging)

    async def query_data(self, name: str, paging: Paging) -> Page[Row]:
        """Data sets of the catalog by name; `name` empty: all."""
        return await self._read(datasets.data_page, name, paging)

    async def list_plan_nodes(self, root: str, paging: Paging) -> Page[Row]:
        """Nodes of the search plan below a root, by where they begin."""
        return await self._read(search_plan.nodes_page, root, paging)

    async def plan_node(self, key: str) -> NodeDetails:
        """A node of the search plan, without its results.

        Raises:
            NotFound: There is no such node.
        """
        return await self._read(search_plan.node_details, key)

    async def plan_results(self, key: str, paging: Paging) -> Page[Row]:
        """A node's results by position."""
        return await self._read(search_plan.results_page, key, paging)

    async def list_blobs(self, paging: Paging) -> Page[Row]:
        """The blobs that somebody owns, by hash."""
        return await self._read(queries.blobs_page, paging)

    async def known_blobs(self, hashes: tuple[str, ...]) -> set[str]:
        """Those of the hashes that the index knows."""
        return await self._read(queries.blobs_known, hashes)

    async def owned_blobs(self, owner: str, hashes: tuple[str, ...]) -> set[str]:
        """Those of the hashes that an owner owns."""
        return await self._read(queries.blobs_owned, owner, hashes)

    async def watch_statistics(
        self, experiment: str, job: str, *, replay: bool
    ) -> AsyncGenerator[tuple[Row, ...], None]:
        """Statistics as they are committed, in the order of the commits, for ever.

        Args:
            experiment: Its id; one that is not there yet may come.
            job: Empty: all jobs.
            replay: Whether to begin with what is there.

        Yields:
            First an empty batch, which says that the watch stands: what is committed from then on will come. Then
            batches that are not empty. A slow reader gets larger batches; none is left out.

        Raises:
            Unavailable: The service stops.
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
                _log.warning("what was committed stays in the WAL just now: %s", error.orig)

    async def _read(self, query: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        def read() -> T:
            with self._database.reader.begin() as connection:
                return query(connection, *args, **kwargs)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, read)
        except OperationalError as error:
            raise Unavailable(f"the database cannot be read just now: {error.orig}") from error
