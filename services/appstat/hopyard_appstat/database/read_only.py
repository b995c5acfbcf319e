"""Opens the database of a service that does not run, to read it: it is neither created, changed nor migrated."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.pool import QueuePool, StaticPool

from hopyard._common import formatting
from hopyard.errors import Conflict, DataLoss
from hopyard_appstat.blobs.cluster_id import STORE, check_file
from hopyard_appstat.database import queries
from hopyard_appstat.database.connections import BUSY_SECONDS, READERS, damage_of, database_url
from hopyard_appstat.database.file_check import DATABASE, REMEDY, check_files, log_of
from hopyard_appstat.database.record_chain import ChainCheck
from hopyard_appstat.database.schema import metadata
from hopyard_appstat.database.writer import cause_of
from hopyard_appstat.migrations.migrate import NEWEST, revision

_CLUSTER_STREAM: Final = "cluster"
"""Name of the stream of the cluster itself."""


def open_read_only(data: Path) -> Engine:
    """Return an engine that reads the database in the data folder `data`. If there is none, the result is an empty one in memory.

    Raises:
        Conflict: The database has the schema of another version of Hopyard, or is missing or empty although the store belongs to a
            cluster.
        DataLoss: The file is not a database, or it or its write-ahead log is damaged (`check_files`).
        Unavailable: The database cannot be opened.
    """
    file = Path(database_url(None, data).database or "")
    check_files(file)
    check_file(file, data / STORE)
    if not file.exists():
        return _empty_engine()
    engine = read_only_engine(file)
    _check_revision(engine, file, data)
    return engine


def read_only_connection(file: Path, *, immutable: bool = False) -> sqlite3.Connection:
    """Open a SQLite database read-only: the connection neither creates, changes nor migrates it. It begins no transaction by itself.

    Other processes may write at the same time: each transaction reads one committed state (WAL mode). SQLite may create the files
    `-wal` and `-shm` beside the database, as for every reader. If this process cannot write to the folder of the database, and there is
    no WAL, it reads only the file of the database.

    Args:
        file: The file of the database.
        immutable: Whether no process writes to it, and it has no WAL, such as a copy in a backup. No file is then created beside it.
    """
    alone = immutable or (not os.access(file.resolve().parent, os.W_OK) and not log_of(file).exists())
    uri = f"{file.absolute().as_uri()}?mode=ro{'&immutable=1' if alone else ''}"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, check_same_thread=False, isolation_level=None)


def read_only_engine(file: Path, *, immutable: bool = False) -> Engine:
    """Return an engine whose connections are those of `read_only_connection`. Each transaction reads one committed state."""

    def connect() -> sqlite3.Connection:
        return read_only_connection(file, immutable=immutable)

    engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool, pool_size=READERS, max_overflow=0)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine


def check_pages(engine: Engine, file: Path) -> None:
    """Raise an error if `PRAGMA quick_check` finds damage in a database. It reads the whole database.

    Args:
        engine: An engine that opens the database read-only. A connection that may write would fold a foreign write-ahead log into the
            database when it is closed.
        file: The file of the database, for messages.

    Raises:
        DataLoss: The database is damaged. The message contains the first damage that SQLite found.
        Unavailable: The database is locked.
    """
    try:
        with engine.connect() as connection:
            found = str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar())
    except OperationalError as error:
        raise cause_of(error, file) from error
    except DatabaseError as error:
        raise damage_of(error, file) or error from error
    if found != "ok":
        what = " ".join(found.replace("*** in database main ***", "").split())
        raise DataLoss(f"{file}: the database is damaged ({what}); {REMEDY}")


def check_database(data: Path) -> str:
    """Check the database in a data directory: its files, its schema, and all its pages with `PRAGMA quick_check`.

    It is the plugin `database` of the entry-point group `hopyard.doctor`. A cluster may run in the directory.

    Returns:
        What was checked, as text.

    Raises:
        Conflict, DataLoss, Unavailable: See `open_read_only` and `check_pages`.
    """
    file = data / DATABASE
    began = time.monotonic()
    engine = open_read_only(data)
    try:
        if not file.exists():
            return "no database yet"
        check_pages(engine, file)
    finally:
        engine.dispose()
    return f"{formatting.size(file.stat().st_size)}, all pages intact (quick_check in {time.monotonic() - began:.1f} s)"


def check_cluster_stream(data: Path) -> None:
    """Read the journal of the cluster itself in a data directory. A cluster may run in the directory.

    Raises:
        DataLoss: A record was changed, removed, doubled or moved. The message names its position.
        Conflict, DataLoss, Unavailable: See `open_read_only`.
    """
    engine = open_read_only(data)
    try:
        with engine.begin() as connection:
            last, head = queries.end_of(connection, _CLUSTER_STREAM)
            chain = ChainCheck(_CLUSTER_STREAM)
            while chain.position < last and (
                records := queries.journal_part(connection, _CLUSTER_STREAM, chain.position + 1, last)
            ):
                chain.add(records)
            if last:
                chain.end(last, head)
    except OperationalError as error:
        raise cause_of(error, data / DATABASE) from error
    except DatabaseError as error:
        raise damage_of(error, data / DATABASE) or error from error
    finally:
        engine.dispose()


def _check_revision(engine: Engine, file: Path, data: Path) -> None:
    """Raise an error unless the database has the newest schema.

    Args:
        engine: The engine of the database.
        file: The file of the database, for messages.
        data: The data folder, for messages.

    Raises:
        Conflict, DataLoss, Unavailable: See `open_read_only`.
    """
    try:
        with engine.begin() as connection:
            found = revision(connection, file)
    except OperationalError as error:
        engine.dispose()
        raise cause_of(error, file) from error
    except DatabaseError as error:
        engine.dispose()
        raise damage_of(error, file) or error from error
    if found == NEWEST:
        return
    engine.dispose()
    what = f"found schema revision {found or 'none'}, and this version of Hopyard reads {NEWEST}"
    if found is None or found < NEWEST:
        raise Conflict(
            f"{file}: {what}; read-only commands change nothing: `hopyard gc --dry-run --data {data}` upgrades the "
            "database without training anything"
        )
    raise Conflict(f"{file}: {what}; use the version of Hopyard that wrote it, or a newer one")


def _empty_engine() -> Engine:
    """Return an engine of an empty database in memory."""
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    metadata.create_all(engine)
    return engine
