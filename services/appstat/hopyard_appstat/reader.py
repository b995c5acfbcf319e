"""Reads AppStat's data in a data folder in which no service runs: the plugin `appstat` of the entry-point group `hopyard.readers`.

Clients use it to read the experiments of a cluster that does not run. It opens no port and changes nothing: the database is opened
read-only and is not migrated.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc

from hopyard.v1 import appstat_pb2 as pb
from hopyard.v1.appstat_pb2_grpc import (
    add_AppStatServiceServicer_to_server,
    add_CatalogServiceServicer_to_server,
    add_SearchPlanServiceServicer_to_server,
)
from hopyard_appstat.blobs.cluster_id import STORE
from hopyard_appstat.database.read_only import open_read_only
from hopyard_appstat.database.store_reader import StoreReader
from hopyard_appstat.query_servicers import AppStatQueries, CatalogQueries, SearchPlanServicer


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
        self._store = StoreReader(open_read_only(data))
        self._blobs = data / STORE

    def register(self, server: grpc.aio.Server) -> None:
        """Add the servicers of AppStat to a server, or to a `ServicerChannel`, which refuses calls that write."""
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
        """Send the bytes of a blob. The client verifies their hash. NotFound: it is not stored. InvalidInput: the hash is malformed."""
        # The backends import the library of object stores, which other queries do not need.
        from hopyard_appstat.blobs.backends import LocalBackend
        from hopyard_appstat.blobs.store import check_sha256

        async with aclosing(LocalBackend(self._blobs).read(check_sha256(request.sha256))) as chunks:
            async for chunk in chunks:
                yield pb.GetBlobResponse(data=chunk)
