"""Bringing a database to the newest schema, at every start."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Column, Connection, Engine, MetaData, PrimaryKeyConstraint, String, Table, inspect, select
from sqlalchemy.exc import OperationalError

from hopyard.errors import Conflict
from hopyard_appstat.database.schema import metadata
from hopyard_appstat.database.writer import cause_of

if TYPE_CHECKING:
    from alembic.config import Config

NEWEST: Final = "0005"
"""The revision that `migrate` brings a database to."""

_FOLDER: Final = Path(__file__).parent / "migrations"

# Alembic's own table, as Alembic makes it.
_VERSION: Final = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def migrate(engine: Engine) -> None:
    """Bring the database to the newest revision, in one transaction; does nothing to one that is there already.

    Alembic takes as long to import as all else of the service, so it is only there when there is something to migrate: an
    empty database gets the newest tables at once.

    Raises:
        Conflict: The database was made by a newer version.
        Exhausted: The disk is full.
        Unavailable: The database cannot be opened or written.
    """
    try:
        with engine.begin() as connection:
            done = _revision(connection) == NEWEST or _made(connection)
        if not done:
            upgrade(engine)
    except OperationalError as error:
        raise cause_of(error, engine.url) from error


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(_VERSION.name):
        return None
    return connection.scalar(select(_VERSION.c.version_num))


def _made(connection: Connection) -> bool:
    """Make all tables in an empty database; False: it is not empty."""
    if {_VERSION.name, *metadata.tables} & set(inspect(connection).get_table_names()):
        return False
    metadata.create_all(connection)
    _VERSION.create(connection)
    connection.execute(_VERSION.insert().values(version_num=NEWEST))
    return True


def upgrade(engine: Engine) -> None:
    """Migrate step by step, from the revision that the database has.

    Raises:
        Conflict: The database was made by a newer version.
    """
    from alembic import command
    from alembic.util import CommandError

    config = _config()
    # At every start it tells how it works, which is nobody's news.
    logging.getLogger("alembic").setLevel(logging.WARNING)
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
