"""The asynchronous interface of the database for reading. Rows are dicts; queries run in threads and do not block the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DatabaseError, OperationalError

from hopyard.errors import InvalidInput, Unavailable
from hopyard_appstat.database import datasets, queries, search_plan
from hopyard_appstat.database.connections import READERS, damage_of
from hopyard_appstat.database.record_chain import START, ChainCheck
from hopyard_appstat.database.search_plan import NodeDetails
from hopyard_appstat.pagination import Page, PageRequest
from hopyard_appstat.rows import Row

P = ParamSpec("P")
T = TypeVar("T")


class StoreReader:
    """Reads the journal, statistics, projections, index of blobs, data set catalog and search plan in the database.

    Args:
        reader: The engine of a database with the newest schema. Its connections need not be able to write.
    """

    def __init__(self, reader: Engine) -> None:
        self._reader = reader
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="appstat-reader")

    def release(self) -> None:
        """Wait for the queries in progress, and close all threads and database connections. Later queries fail."""
        self._threads.shutdown()
        self._reader.dispose()

    async def read_journal(self, stream: str, first: int = 1) -> AsyncGenerator[tuple[Row, ...], None]:
        """Yield the records of a stream, in order, in parts of about 1 MiB, up to the last record at the time of the call.

        Args:
            stream: Name of the stream. A stream that does not exist has no records.
            first: Position of the first record; 0: the same as 1.

        Raises:
            InvalidInput: The position is negative.
            DataLoss: A record was changed, removed, doubled or moved. The parts before it were yielded.
        """
        if first < 0:
            raise InvalidInput(f"from_position: found {first}, allowed is 0 or more")
        last, head = await self._read(queries.end_of, stream)
        before = max(0, first - 1)
        if before > last or not last:
            return
        previous = await self._read(queries.checksum_of, stream, before) if before else START
        chain = ChainCheck(stream, before, previous or START)
        while chain.position < last:
            records = await self._read(queries.journal_part, stream, chain.position + 1, last)
            if not records:
                break
            chain.add(records)
            yield records
        if chain.position < last and (await self._read(queries.end_of, stream))[0] < last:
            return  # The stream was deleted meanwhile. (A stream that has grown has lost records.)
        chain.end(last, head)

    async def read_projections(
        self,
        stream: str,
        names: Sequence[str],
        trainings: Sequence[str],
        use: Callable[[queries.StreamProjections], T],
    ) -> T:
        """Read the rows that follow from the journal of a stream, from one state of the database.

        Args:
            stream: Id of the stream.
            names: Ids of its experiments.
            trainings: Trainings whose scaling profiles are read, also those that other experiments measured.
            use: Called with the rows in a thread, while the transaction is open. It must not wait for a client.

        Returns:
            The result of `use`.
        """
        return await self._read(lambda connection: use(queries.projections_of(connection, stream, names, trainings)))

    async def list_streams(self, paging: PageRequest) -> Page[Row]:
        """Return a page of the streams with their lengths, ordered by name."""
        return await self._read(queries.stream_page, paging)

    async def query_statistics(self, experiment: str, job: str, paging: PageRequest) -> Page[Row]:
        """Return a page of the statistics of an experiment, ordered by (job, position, part). An empty `job` means all jobs.

        The column `part` is the partition of the data on which the values of the report were measured; empty: all data.
        """
        return await self._read(queries.statistics_page, experiment, job, paging)

    async def query_experiments(self, state: int, paging: PageRequest) -> Page[Row]:
        """Return a page of the experiments, newest first. `state` is the number of an `ExperimentState`; 0 means all states."""
        return await self._read(queries.experiments_page, state, paging)

    async def query_jobs(self, experiment: str, paging: PageRequest) -> Page[Row]:
        """Return a page of the jobs of an experiment, in order of creation."""
        return await self._read(queries.jobs_page, experiment, paging)

    async def query_scaling(self, training: str, paging: PageRequest) -> Page[Row]:
        """Return a page of the scaling profiles of a training, ordered by (hardware, slots).

        `training` is a hash of what determines the time of one unit, except the kind of host (`hardware`) and the number of slots.
        """
        return await self._read(queries.scaling_page, training, paging)

    async def query_data(self, name: str, paging: PageRequest) -> Page[Row]:
        """Return a page of the data sets, ordered by name; if `name` is not empty, at most the data set with exactly this name."""
        return await self._read(datasets.data_page, name, paging)

    async def list_plan_nodes(self, root: str, paging: PageRequest) -> Page[Row]:
        """Return a page of the search plan's nodes with the root `root` (a hash), ordered by (start position, key)."""
        return await self._read(search_plan.nodes_page, root, paging)

    async def plan_node(self, key: str) -> NodeDetails:
        """Return a node of the search plan with the trials that pass through it and their snapshots, without their results.

        Raises:
            NotFound: No node has this key.
        """
        return await self._read(search_plan.node_details, key)

    async def plan_results(self, key: str, paging: PageRequest) -> Page[Row]:
        """Return a page of the results of the search plan's node `key`, ordered by (position, experiment, job, part)."""
        return await self._read(search_plan.results_page, key, paging)

    async def list_blobs(self, paging: PageRequest) -> Page[Row]:
        """Return a page of the index of blobs, ordered by hash, each blob with its owners."""
        return await self._read(queries.blobs_page, paging)

    async def known_blobs(self, hashes: tuple[str, ...]) -> set[str]:
        """Return those of the hashes whose blobs are in the index."""
        return await self._read(queries.blobs_known, hashes)

    async def blob_sizes(self, hashes: tuple[str, ...]) -> dict[str, int]:
        """Return the recorded sizes in bytes of those of the blobs that are in the index, by hash."""
        return await self._read(queries.blob_sizes, hashes)

    async def owned_blobs(self, owner: str, hashes: tuple[str, ...]) -> set[str]:
        """Return those of the hashes whose blobs have the owner `owner`, by the index."""
        return await self._read(queries.blobs_owned, owner, hashes)

    async def _read(self, query: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        def read() -> T:
            with self._reader.begin() as connection:
                return query(connection, *args, **kwargs)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, read)
        except OperationalError as error:
            raise Unavailable(f"the database cannot be read ({error.orig}); try again") from error
        except DatabaseError as error:
            raise damage_of(error, "the database") or error from error
