from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hopyard_appstat.database.connections import database_url, open_database
from hopyard_appstat.database.store import Store
from hopyard_appstat.migrations.migrate import migrate


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """A running store on a new SQLite file."""
    database = open_database(database_url(None, tmp_path))
    migrate(database.writer)
    opened = Store(database, wall_clock=lambda: 1000.0)
    running = asyncio.create_task(opened.run())
    yield opened
    await opened.close()
    await running
    opened.release()
