"""The AppStat service as an object: it starts and stops the database writer, the blob store and the gRPC server."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from hopyard._common.private_files import make_private_folder
from hopyard._net.rpc import MAX_MESSAGE_BYTES
from hopyard._net.server import DEFAULT_GRACE_SECONDS, Background, FolderLock, Server
from hopyard.v1.appstat_pb2_grpc import (
    add_AppStatServiceServicer_to_server,
    add_CatalogServiceServicer_to_server,
    add_SearchPlanServiceServicer_to_server,
)
from hopyard_appstat.blobs.cluster_id import STORE, check_file, claim_store, refuse_new_database, store_owner
from hopyard_appstat.blobs.store import DEFAULT_MAX_BLOB_BYTES, BlobStore, open_backend
from hopyard_appstat.database.blob_ownership import OwnedBlobs
from hopyard_appstat.database.connections import Database, Synchronous, database_url, open_database
from hopyard_appstat.database.file_check import check_files, has_log
from hopyard_appstat.database.queries import cluster_of
from hopyard_appstat.database.read_only import check_pages, read_only_engine
from hopyard_appstat.database.store import Store
from hopyard_appstat.migrations.migrate import NEWEST, is_empty, migrate, revision
from hopyard_appstat.query_servicers import SearchPlanServicer
from hopyard_appstat.servicer import CATALOG, SEARCH_PLAN, SERVICE, AppStatServicer, CatalogServicer

_log = logging.getLogger(__name__)

PARTIALS_SECONDS: Final = 60.0
"""Delay in seconds between the start and the deletion of partial uploads that a killed earlier process left."""


class AppStatService:
    """The AppStat service, alone in a process or embedded with other services in one event loop.

    Work that blocks (database, disk) runs in threads.

    Args:
        data: Data folder for database, blobs, lock and address file; created if it does not exist.
        host: Address of a TCP port to listen on, which requires `insecure`; None: a Unix socket in `data`.
        port: TCP port to listen on; 0: any free port.
        insecure: Whether to allow TCP without encryption.
        database: URL of the database; None: SQLite in the data folder.
        synchronous: When SQLite waits for the disk; a `Synchronous` or its value.
        store: URL of the blob store; None: the folder `store/` in the data folder.
        max_blob_bytes: Maximum size of a blob in bytes.
        adopt: Whether a store in the data folder that belongs to another cluster belongs to the cluster of the database from now on.

    Raises:
        Conflict: `host` is given without `insecure`.
        InvalidInput: The URL of the database or of the blob store is not supported.
    """

    def __init__(
        self,
        data: Path,
        *,
        host: str | None = None,
        port: int = 0,
        insecure: bool = False,
        database: str | None = None,
        synchronous: Synchronous | str = Synchronous.NORMAL,
        store: str | None = None,
        max_blob_bytes: int = DEFAULT_MAX_BLOB_BYTES,
        adopt: bool = False,
    ) -> None:
        self._data = data
        self._url = database_url(database, data)
        self._synchronous = Synchronous(synchronous)
        self._server = Server(
            "appstat", host=host, port=port, data=data, insecure=insecure, request_bytes=MAX_MESSAGE_BYTES
        )
        self._blobs = BlobStore(open_backend(store, data), data / "incoming", max_bytes=max_blob_bytes)
        self._alone = store is None
        self._adopt = adopt
        self._lock = FolderLock(data, "appstat")
        self._background = Background("appstat")
        self._store: Store | None = None
        self._writing: asyncio.Task[None] | None = None
        self._stopped: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """The address on which the service listens, unix:/PATH or HOST:PORT; empty before `start`."""
        return self._server.address

    @property
    def commits(self) -> int:
        """Number of transactions committed since the start. One transaction may contain several appends."""
        return self._store.commits if self._store is not None else 0

    async def start(self) -> str:
        """Open and migrate the database, start to listen, and return the address.

        Raises:
            InvalidInput: Other users could read or replace the data folder (`make_private_folder`).
            Conflict: Another AppStat uses the data folder, the database is of a newer version, the port is in use, or the store in
                the data folder belongs to another cluster than the database.
            Exhausted: The disk is full.
            Unavailable: The database cannot be opened.
        """
        await self._blobs_and_lock()
        try:
            self._store = Store(await asyncio.to_thread(self._open))
            self._writing = self._background.start(self._store.run(), name="writer")
            self._background.start(self._clear_partials(), name="partials")
            owned = OwnedBlobs(self._store, self._blobs, alone=self._alone)
            servicer = AppStatServicer(self._store, owned, self._data)
            self._server.add(add_AppStatServiceServicer_to_server, servicer, SERVICE)
            self._server.add(add_SearchPlanServiceServicer_to_server, SearchPlanServicer(self._store), SEARCH_PLAN)
            self._server.add(add_CatalogServiceServicer_to_server, CatalogServicer(self._store), CATALOG)
            return await self._server.start()
        except BaseException:
            await self.stop(0)
            raise

    async def wait(self, stop: asyncio.Event) -> None:
        """Wait until the event `stop` is set. If a background task of the service fails before, raise its error at once."""
        await self._background.wait(stop)

    async def stop(self, grace: float | None = DEFAULT_GRACE_SECONDS) -> None:
        """End watches, refuse new calls, wait for pending calls, commit their writes, and close the database. Safe to call twice.

        Args:
            grace: Maximum time in seconds to wait for pending calls, which are then cancelled; None: no limit.
        """
        if self._stopped is None:
            self._stopped = asyncio.get_running_loop().create_task(self._stop(grace), name="appstat.stop")
        await asyncio.shield(self._stopped)

    async def run(self, stop: asyncio.Event) -> None:
        """Start the service, serve until the event `stop` is set, and stop it.

        If a background task fails, stop the service and raise its error. Errors of starting as in `start`.
        """
        await self.start()
        try:
            await self.wait(stop)
        finally:
            await self.stop()

    async def _blobs_and_lock(self) -> None:
        await asyncio.to_thread(make_private_folder, self._data)
        self._lock.take()
        try:
            await self._blobs.open()
        except BaseException:
            self._lock.give_back()
            raise

    async def _clear_partials(self) -> None:
        """Delete the partial uploads of an earlier process, `PARTIALS_SECONDS` after the start.

        Because of the delay, a service that runs only briefly, for example to inspect a folder, changes nothing.
        """
        await asyncio.sleep(PARTIALS_SECONDS)
        try:
            count, size = await self._blobs.clear_partials()
        except OSError as error:
            _log.warning("partial uploads of an earlier process cannot be deleted: %s", error)
            return
        if count:
            _log.info("deleted %d partial uploads of an earlier process (%d bytes)", count, size)

    def _open(self) -> Database:
        if self._url.get_backend_name() == "sqlite":
            self._check_files(Path(self._url.database or ""))
        database = open_database(self._url, synchronous=self._synchronous)
        store = self._data / STORE
        try:
            if self._alone and not self._adopt:
                if self._url.get_backend_name() == "sqlite":
                    check_file(Path(self._url.database or ""), store)
                if is_empty(database.writer):
                    refuse_new_database(self._url.render_as_string(), "is empty", store)
            migrate(database.writer)
            if self._alone:  # A store with a URL may be shared by clusters, which delete only their own blobs there.
                with database.reader.connect() as connection:
                    cluster = cluster_of(connection)
                claim_store(store, cluster, adopt=self._adopt)
        except BaseException:
            database.close()
            raise
        _log.info("the database is %s", self._url.render_as_string())
        return database

    def _check_files(self, file: Path) -> None:
        """Raise an error if the files of the SQLite database are damaged, before anything is written.

        If the last process did not close the database, the write-ahead log may be that of another one. All pages are then read, and
        the id of the cluster is compared with that of the store. A connection that may write would fold the log into the database.
        """
        check_files(file)
        if not has_log(file):
            return
        engine, store = read_only_engine(file), self._data / STORE
        try:
            check_pages(engine, file)
            if self._alone and not self._adopt and store_owner(store):
                if is_empty(engine):
                    refuse_new_database(str(file), "is empty, or its -wal file is of another database", store)
                with engine.connect() as connection:
                    if revision(connection, file) == NEWEST:
                        claim_store(store, cluster_of(connection), adopt=False)
        finally:
            engine.dispose()

    async def _stop(self, grace: float | None) -> None:
        try:
            if self._store is not None:
                self._store.end_watches()
            await self._server.stop(grace)
            await self._blobs.close()
            if self._store is not None and self._writing is not None:
                await self._store.close()
                await asyncio.wait([self._writing])
            await self._background.stop()
        finally:
            if self._store is not None:
                await asyncio.to_thread(self._store.release)
            self._lock.give_back()
