"""Migrates a database to the newest revision of the schema, at each start of the service."""

from __future__ import annotations

import logging
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import URL, Column, Connection, Engine, MetaData, PrimaryKeyConstraint, String, Table, inspect, select
from sqlalchemy.exc import DatabaseError, OperationalError

from hopyard.errors import Conflict, DataLoss
from hopyard_appstat.database.connections import damage_of
from hopyard_appstat.database.record_chain import RESTORE
from hopyard_appstat.database.schema import clusters, metadata
from hopyard_appstat.database.writer import cause_of

if TYPE_CHECKING:
    from alembic.config import Config

NEWEST: Final = "0009"
"""The schema revision that `migrate` creates."""

_FOLDER: Final = Path(__file__).parent

# The table in which Alembic keeps the revision, as Alembic itself creates it.
_VERSION: Final = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def migrate(engine: Engine) -> None:
    """Migrate the database to the newest revision in one transaction. Do nothing if it has that revision.

    An empty database gets the newest tables directly. Alembic is imported only if older tables must be migrated, because its import
    takes as long as all other imports of the service.

    Raises:
        Conflict: A newer version of Hopyard created the database.
        DataLoss: The file is not a database, or it is damaged. Nothing is changed.
        Exhausted: The disk is full.
        Unavailable: The database cannot be opened or written.
    """
    try:
        with engine.begin() as connection:
            done = revision(connection, engine.url) == NEWEST or _made(connection)
        if not done:
            upgrade(engine)
    except OperationalError as error:
        raise cause_of(error, engine.url) from error
    except DatabaseError as error:
        raise damage_of(error, engine.url) or error from error


def revision(connection: Connection, database: URL | Path) -> str | None:
    """Return the schema revision of a database; None: it is empty or not a database of AppStat.

    Args:
        connection: A connection to the database.
        database: The URL or the file of the database, for the message.

    Raises:
        DataLoss: It has tables of AppStat, but no readable revision.
    """
    tables = _tables(connection)
    if not tables:
        return None
    what = "is missing"
    if _VERSION.name in tables:
        revisions = connection.scalars(select(_VERSION.c.version_num)).all()
        if len(revisions) == 1 and isinstance(revisions[0], str):
            return revisions[0]
        what = f"holds {revisions!r:.80}"
    name = database.render_as_string() if isinstance(database, URL) else database
    raise DataLoss(
        f"{name}: the table {_VERSION.name} {what}, needed is one row with the revision of the schema; {RESTORE}"
    )


def is_empty(engine: Engine) -> bool:
    """Return whether a database has no tables of AppStat: it is new, or its data are lost.

    Raises:
        DataLoss: The file is not a database, or it is damaged.
        Unavailable: The database cannot be opened.
    """
    try:
        with engine.connect() as connection:
            return not _tables(connection)
    except OperationalError as error:
        raise cause_of(error, engine.url) from error
    except DatabaseError as error:
        raise damage_of(error, engine.url) or error from error


def _tables(connection: Connection) -> set[str]:
    """Return the names of the tables of AppStat that a database has."""
    return {_VERSION.name, *metadata.tables} & set(inspect(connection).get_table_names())


def _made(connection: Connection) -> bool:
    """Create all tables and return True if the database is empty; otherwise change nothing and return False."""
    if _tables(connection):
        return False
    metadata.create_all(connection)
    _VERSION.create(connection)
    connection.execute(_VERSION.insert().values(version_num=NEWEST))
    cluster = uuid.uuid4().hex
    connection.execute(clusters.insert().values(id=cluster, history=cluster))
    return True


def upgrade(engine: Engine) -> None:
    """Apply the migrations from the database's current revision to the newest, in one transaction; none if it has the newest.

    For a database without a revision, all migrations are applied.

    Raises:
        Conflict: A newer version of Hopyard created the database.
    """
    # Alembic logs details of its operation on each import and run, which users do not need.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    from alembic import command
    from alembic.util import CommandError

    config = _config()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise Conflict(
                f"{engine.url.render_as_string()}: this version does not know the database's revision ({error}); "
                "start the version of Hopyard that made it, or a newer one"
            ) from error


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    # ConfigParser reads % as interpolation.
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
