"""Tests that a database and the store in its data folder belong to one cluster: a lost database is not replaced by a new one."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from hopyard.errors import Conflict
from hopyard_appstat.blobs.cluster_id import CLUSTER_FILE, store_owner
from hopyard_appstat.database.connections import database_url, open_database
from hopyard_appstat.database.queries import cluster_of
from hopyard_appstat.reader import AppStatReader
from hopyard_appstat.service import AppStatService

DATABASE = "appstat.sqlite"


async def started(data: Path, **options: object) -> str:
    """Start AppStat in a data folder, stop it, and return the id of its cluster."""
    service = AppStatService(data, **options)  # type: ignore[arg-type]
    await service.start()
    await service.stop(0)
    database = open_database(database_url(None, data))
    with database.reader.connect() as connection:
        cluster = cluster_of(connection)
    database.close()
    return cluster


async def refusal(data: Path, **options: object) -> str:
    """Return the error with which AppStat does not start."""
    with pytest.raises(Conflict) as caught:
        await started(data, **options)
    return str(caught.value)


def remove_database(data: Path) -> None:
    for file in data.glob(f"{DATABASE}*"):
        file.unlink()


async def test_a_data_folder_keeps_its_cluster(tmp_path: Path) -> None:
    first, other = await started(tmp_path / "a"), await started(tmp_path / "b")
    assert first != other
    assert await started(tmp_path / "a") == first == store_owner(tmp_path / "a" / "store")


@pytest.mark.parametrize("empty", [False, True])
async def test_a_lost_database_is_not_replaced_by_a_new_one(tmp_path: Path, empty: bool) -> None:
    cluster = await started(tmp_path / "data")
    shutil.copy(tmp_path / "data" / DATABASE, tmp_path / "backup")
    remove_database(tmp_path / "data")
    if empty:
        (tmp_path / "data" / DATABASE).touch()
    found = await refusal(tmp_path / "data")
    assert (
        f"{DATABASE} is {'empty' if empty else 'missing'}, but the store {tmp_path}/data/store belongs to cluster {cluster}"
        in found
    )
    assert "move the data directory away and restore a backup (`hopyard restore BACKUPS`)" in found
    assert "run `hopyard up --adopt`" in found
    with suppress(FileNotFoundError):
        assert (tmp_path / "data" / DATABASE).stat().st_size == 0
    with pytest.raises(Conflict, match="belongs to cluster"):
        AppStatReader(tmp_path / "data")
    shutil.copy(tmp_path / "backup", tmp_path / "data" / DATABASE)
    assert await started(tmp_path / "data") == cluster


async def test_the_database_of_another_cluster_is_refused_until_it_adopts_the_store(tmp_path: Path) -> None:
    first, other = await started(tmp_path / "a"), await started(tmp_path / "b")
    shutil.copy(tmp_path / "b" / DATABASE, tmp_path / "a" / DATABASE)
    found = await refusal(tmp_path / "a")
    assert f"the store {tmp_path}/a/store belongs to cluster {first}, the database to cluster {other}" in found
    assert await started(tmp_path / "a", adopt=True) == other
    assert store_owner(tmp_path / "a" / "store") == other
    assert await started(tmp_path / "a") == other


async def test_a_new_database_adopts_a_store_only_if_that_is_requested(tmp_path: Path) -> None:
    first = await started(tmp_path)
    remove_database(tmp_path)
    await refusal(tmp_path)
    assert await started(tmp_path, adopt=True) == store_owner(tmp_path / "store") != first


async def test_a_store_with_a_url_may_be_shared(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/shared"
    assert await started(tmp_path / "a", store=url) != await started(tmp_path / "b", store=url)
    assert not (tmp_path / "shared" / CLUSTER_FILE).exists()
