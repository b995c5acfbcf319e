"""Tests of the partition catalog in the database: data sets, partitions and replicas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import inspect, text

from hopyard.errors import AlreadyExists, InvalidInput
from hopyard.v1.appstat_pb2 import PutDataSetRequest
from hopyard.v1.data_pb2 import DataPartition, DataReplica, DataSet
from hopyard_appstat.database.connections import Database, database_url, open_database
from hopyard_appstat.database.store import Store
from hopyard_appstat.migrations.migrate import NEWEST, migrate, upgrade
from hopyard_appstat.pagination import PageRequest
from hopyard_appstat.rows import Row, data_set_of, data_set_row

PARTITIONS = (
    DataPartition(
        name="train/0",
        size_bytes=10,
        sha256="aa",
        examples=3,
        replicas=[DataReplica(node="n1", path="/d/0"), DataReplica(node="n2", path="/e/0")],
    ),
    DataPartition(name="train/1", sha256="bb", replicas=[DataReplica(node="n2", path="/d/1")]),
    DataPartition(name="eval/0", size_bytes=7, sha256="cc", examples=0, url="s3://b/e0"),
)


def data(name: str = "fashion", partitions: Iterable[DataPartition] = PARTITIONS) -> DataSet:
    return DataSet(name=name, registered_at=5.0, partitions=partitions)


def row(data: DataSet, request_id: str = "r1") -> Row:
    return data_set_row(PutDataSetRequest(data=data, request_id=request_id))


FASHION = data()


def first_page(size: int = 0, token: str = "") -> PageRequest:
    return PageRequest.of(size, token, "data")


async def test_a_data_set_comes_back_as_it_was_put(store: Store) -> None:
    assert await store.put_data(row(FASHION)) == row(FASHION)
    assert (await store.query_data("", first_page())).items == (row(FASHION),)
    assert (await store.query_data("fashion", first_page())).items == (row(FASHION),)
    assert (await store.query_data("other", first_page())).items == ()


async def test_what_only_the_data_service_knows_is_not_row(store: Store) -> None:
    known = data()
    known.experiments.append("e1")
    known.partitions[0].replicas[0].detail = "it has changed"
    assert data_set_of(await store.put_data(row(known))) == FASHION


async def test_the_same_request_changes_nothing_and_another_one_is_refused(store: Store) -> None:
    await store.put_data(row(FASHION))
    assert await store.put_data(row(data(partitions=()))) == row(FASHION)
    with pytest.raises(AlreadyExists, match="there is a data set 'fashion' already"):
        await store.put_data(row(FASHION, "r2"))
    assert (await store.query_data("", first_page())).items == (row(FASHION),)


async def test_one_without_a_request_is_refused(store: Store) -> None:
    with pytest.raises(InvalidInput, match="request_id"):
        await store.put_data(row(FASHION, ""))


async def test_two_replicas_on_one_node_are_refused(store: Store) -> None:
    wrong = data()
    wrong.partitions[1].replicas.add(node="n2", path="/other")
    with pytest.raises(InvalidInput, match=r"data\.partitions\[1\]\.replicas: found a node twice"):
        await store.put_data(row(wrong))


async def test_a_forgotten_one_leaves_nothing_and_its_name_is_free(store: Store) -> None:
    other = data("digits")
    for one in (FASHION, other):
        await store.put_data(row(one))
    for _ in range(2):
        await store.forget_data("fashion")
    assert (await store.query_data("", first_page())).items == (row(other),)
    again = data(partitions=PARTITIONS[:1])
    assert await store.put_data(row(again, "r2")) == row(again, "r2")
    assert (await store.query_data("fashion", first_page())).items == (row(again, "r2"),)


async def test_pages(store: Store) -> None:
    names = ("a", "b", "c")
    for name in names:
        await store.put_data(row(data(name)))
    found, token = [], ""
    while True:
        page = await store.query_data("", first_page(2, token))
        found += [one["name"] for one in page.items]
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
            "clusters",
        ):
            connection.execute(text(f"drop table {table}"))
        connection.execute(text("alter table streams drop column head"))
        for column in ("checksum", "version"):
            connection.execute(text(f"alter table journal drop column {column}"))
        connection.execute(text("update alembic_version set version_num = '0001'"))
        connection.execute(text("insert into streams (name, length) values ('x', 0)"))
    migrate(database.writer)
    assert {"data_sets", "data_partitions", "data_replicas"} <= set(inspect(database.writer).get_table_names())
    with database.writer.connect() as connection:
        assert connection.scalar(text("select version_num from alembic_version")) == NEWEST
        assert connection.scalar(text("select name from streams")) == "x"


async def test_a_time_that_is_no_number_is_refused() -> None:
    wrong = data()
    wrong.registered_at = float("nan")
    with pytest.raises(InvalidInput, match="registered_at: needs a finite number, found nan"):
        row(wrong)


async def test_values_that_no_table_accepts_are_refused(store: Store) -> None:
    for wrong in ({"registered_at": float("nan")}, {"registered_at": 10**400}):
        with pytest.raises(InvalidInput, match="the database does not accept a"):
            await store.put_data({**row(FASHION), **wrong})
    assert await store.put_data(row(FASHION)) == row(FASHION)
