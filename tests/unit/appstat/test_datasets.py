"""The partition catalog's rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import inspect, text

from hopyard.errors import AlreadyExists, InvalidInput
from hopyard_appstat.database.connections import Database, database_url, open_database
from hopyard_appstat.database.store import Store
from hopyard_appstat.migrate import NEWEST, migrate, upgrade
from hopyard_appstat.pagination import Paging
from hopyard_appstat.records import DataSetRecord, PartitionRecord

FASHION = DataSetRecord(
    "fashion",
    "r1",
    5.0,
    (
        PartitionRecord("train/0", 10, "aa", 3, replicas=(("n1", "/d/0"), ("n2", "/e/0"))),
        PartitionRecord("train/1", 0, "bb", None, replicas=(("n2", "/d/1"),)),
        PartitionRecord("eval/0", 7, "cc", 0, url="s3://b/e0"),
    ),
)


def first_page(size: int = 0, token: str = "") -> Paging:
    return Paging.of(size, token, "data")


async def test_a_data_set_comes_back_as_it_was_put(store: Store) -> None:
    assert await store.put_data(FASHION) == FASHION
    assert (await store.query_data("", first_page())).items == (FASHION,)
    assert (await store.query_data("fashion", first_page())).items == (FASHION,)
    assert (await store.query_data("other", first_page())).items == ()


async def test_the_same_request_changes_nothing_and_another_one_is_refused(store: Store) -> None:
    await store.put_data(FASHION)
    assert await store.put_data(replace(FASHION, partitions=())) == FASHION
    with pytest.raises(AlreadyExists, match="there is a data set 'fashion' already"):
        await store.put_data(replace(FASHION, request_id="r2"))
    assert (await store.query_data("", first_page())).items == (FASHION,)


async def test_one_without_a_request_is_refused(store: Store) -> None:
    with pytest.raises(InvalidInput, match="request_id"):
        await store.put_data(replace(FASHION, request_id=""))


async def test_a_forgotten_one_leaves_nothing_and_its_name_is_free(store: Store) -> None:
    other = replace(FASHION, name="digits")
    for one in (FASHION, other):
        await store.put_data(one)
    for _ in range(2):
        await store.forget_data("fashion")
    assert (await store.query_data("", first_page())).items == (other,)
    again = replace(FASHION, request_id="r2", partitions=FASHION.partitions[:1])
    assert await store.put_data(again) == again
    assert (await store.query_data("fashion", first_page())).items == (again,)


async def test_pages(store: Store) -> None:
    names = ("a", "b", "c")
    for name in names:
        await store.put_data(replace(FASHION, name=name))
    found, token = [], ""
    while True:
        page = await store.query_data("", first_page(2, token))
        found += [one.name for one in page.items]
        token = page.next_token
        if not token:
            break
    assert tuple(found) == names


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(database_url(None, tmp_path))
    yield opened
    opened.close()


def test_a_database_of_the_version_before_gets_the_tables_and_keeps_its_rows(database: Database) -> None:
    upgrade(database.writer)
    with database.writer.begin() as connection:
        for table in (
            "data_replicas",
            "data_partitions",
            "data_sets",
            "plan_nodes",
            "plan_stretches",
            "plan_snapshots",
            "scaling",
        ):
            connection.execute(text(f"drop table {table}"))
        connection.execute(text("update alembic_version set version_num = '0001'"))
        connection.execute(text("insert into streams (name, length) values ('x', 0)"))
    migrate(database.writer)
    assert {"data_sets", "data_partitions", "data_replicas"} <= set(inspect(database.writer).get_table_names())
    with database.writer.connect() as connection:
        assert connection.scalar(text("select version_num from alembic_version")) == NEWEST
        assert connection.scalar(text("select name from streams")) == "x"
