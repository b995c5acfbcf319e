"""Reads AppStat's data in a data folder in which no service runs: the plugin `appstat` of the entry-point group `hopyard.readers`.

Nothing listens, and nothing is changed: the database is opened read-only and is not migrated.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import grpc
from sqlalchemy import Engine, create_engine
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.pool import StaticPool

from hopyard.errors import Conflict, DataLoss, Unavailable
from hopyard.v1 import appstat_pb2 as pb
from hopyard.v1.appstat_pb2_grpc import (
    add_AppStatServiceServicer_to_server,
    add_CatalogServiceServicer_to_server,
    add_SearchPlanServiceServicer_to_server,
)
from hopyard_appstat.database.connections import database_url, read_only_engine
from hopyard_appstat.database.schema import metadata
from hopyard_appstat.database.store_reader import StoreReader
from hopyard_appstat.migrate import NEWEST, revision
from hopyard_appstat.query_servicers import AppStatQueries, CatalogQueries, SearchPlanServicer

STORE: Final = "store"
"""Name of the folder of the blobs in the data folder."""


class AppStatReader:
    """The queries of AppStat on the data folder of a cluster that does not run.

    Args:
        data: The data folder. Without a database in it, because its cluster ended before it made one, every list is empty.

    Raises:
        Conflict: The database has the schema of another version of Hopyard.
        DataLoss: The file is not a database.
        Unavailable: The database cannot be opened.
    """

    def __init__(self, data: Path) -> None:
        file = Path(database_url(None, data).database or "")
        if file.exists():
            engine = read_only_engine(file)
            _check_revision(engine, file, data)
        else:
            engine = _empty_engine()
        self._store = StoreReader(engine)
        self._blobs = data / STORE

    def register(self, server: grpc.aio.Server) -> None:
        """Add the servicers of AppStat to a server."""
        # The server refuses the methods that the servicers do not implement.
        queries, catalog = _ReadOnlyServicer(self._store, self._blobs), CatalogQueries(self._store)  # type: ignore[abstract]
        add_AppStatServiceServicer_to_server(queries, server)
        add_SearchPlanServiceServicer_to_server(SearchPlanServicer(self._store), server)
        add_CatalogServiceServicer_to_server(catalog, server)

    def close(self) -> None:
        """Close the database. Safe to call twice."""
        self._store.release()


class _ReadOnlyServicer(AppStatQueries):
    """The queries of AppStat, and the bytes of blobs in a folder.

    Args:
        reader: The database.
        blobs: The folder of the blobs.
    """

    def __init__(self, reader: StoreReader, blobs: Path) -> None:
        super().__init__(reader)
        self._blobs = blobs

    async def GetBlob(self, request: pb.GetBlobRequest, context: Any) -> AsyncIterator[pb.GetBlobResponse]:
        """Stream the bytes of a blob. The client verifies their hash."""
        # The backends import the library of object stores, which other queries do not need.
        from hopyard_appstat.blobs.backends import LocalBackend
        from hopyard_appstat.blobs.store import check_sha256

        async with aclosing(LocalBackend(self._blobs).read(check_sha256(request.sha256))) as chunks:
            async for chunk in chunks:
                yield pb.GetBlobResponse(data=chunk)


def _check_revision(engine: Engine, file: Path, data: Path) -> None:
    """Raise an error unless the database has the newest schema.

    Args:
        engine: The engine of the database.
        file: The file of the database, for messages.
        data: The data folder, for messages.

    Raises:
        Conflict, DataLoss, Unavailable: See `AppStatReader`.
    """
    try:
        with engine.begin() as connection:
            found = revision(connection)
    except OperationalError as error:
        engine.dispose()
        raise Unavailable(f"{file}: the database cannot be read just now: {error.orig}") from error
    except DatabaseError as error:
        engine.dispose()
        raise DataLoss(f"{file}: cannot be read as a database ({error.orig}); restore it from a copy") from error
    if found == NEWEST:
        return
    engine.dispose()
    what = f"found schema revision {found or 'none'}, and this version of Hopyard reads {NEWEST}"
    if found is None or found < NEWEST:
        raise Conflict(
            f"{file}: {what}; commands that only look change nothing: `hopyard gc --dry-run --data {data}` upgrades the "
            "database without training anything"
        )
    raise Conflict(f"{file}: {what}; use the version of Hopyard that wrote it, or a newer one")


def _empty_engine() -> Engine:
    """Return an engine of an empty database in memory."""
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    metadata.create_all(engine)
    return engine
