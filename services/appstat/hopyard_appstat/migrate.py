"""Bringing a database to the newest schema, at every start."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from hopyard.errors import Conflict
from hopyard_appstat.writer import cause_of

_FOLDER: Final = Path(__file__).parent / "migrations"


def newest_revision() -> str:
    """The revision that `migrate` brings a database to."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


def migrate(engine: Engine) -> None:
    """Bring the database to the newest revision, in one transaction; does nothing to one that is there already.

    Raises:
        Conflict: The database was made by a newer version.
        Exhausted: The disk is full.
        Unavailable: The database cannot be opened or written.
    """
    try:
        _migrate(engine)
    except OperationalError as error:
        raise cause_of(error, engine.url) from error


def _migrate(engine: Engine) -> None:
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
    config = Config()
    # ConfigParser reads % as interpolation.
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
