"""The partition catalog: what a transaction does to it, and what is read of it."""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import Connection, delete, select

from hopyard.errors import AlreadyExists, InvalidInput
from hopyard_appstat.database.schema import data_partitions, data_replicas, data_sets
from hopyard_appstat.pagination import Paging, cut
from hopyard_appstat.records import DataSetRecord, Page, PartitionRecord

_TABLES = (data_sets, data_partitions, data_replicas)


def put(connection: Connection, data: DataSetRecord) -> DataSetRecord:
    """Keep a data set, all of it or nothing; answers it as it is kept, which the same request did perhaps before.

    Raises:
        AlreadyExists: Another request has kept one of this name.
        InvalidInput: It has no name or no request id.
    """
    if not (data.name and data.request_id):
        raise InvalidInput("data: a name and a request_id are required")
    known = get(connection, data.name)
    if known is not None:
        if known.request_id == data.request_id:
            return known
        raise AlreadyExists(f"there is a data set {data.name!r} already")
    connection.execute(
        data_sets.insert().values(name=data.name, request_id=data.request_id, registered_at=data.registered_at)
    )
    rows = [
        {
            "data_set": data.name,
            "ordinal": ordinal,
            "name": one.name,
            "size_bytes": one.size_bytes,
            "sha256": one.sha256,
            "examples": one.examples,
            "url": one.url,
        }
        for ordinal, one in enumerate(data.partitions)
    ]
    replicas = [
        {"data_set": data.name, "partition": ordinal, "node": node, "path": path}
        for ordinal, one in enumerate(data.partitions)
        for node, path in one.replicas
    ]
    for table, values in ((data_partitions, rows), (data_replicas, replicas)):
        if values:
            connection.execute(table.insert(), values)
    return data


def forget(connection: Connection, name: str) -> None:
    """Forget a data set; one that is not there counts as forgotten."""
    for table in _TABLES:
        column = table.c.name if table is data_sets else table.c.data_set
        connection.execute(delete(table).where(column == name))


def get(connection: Connection, name: str) -> DataSetRecord | None:
    """A data set; None: there is none of this name."""
    row = connection.execute(select(data_sets).where(data_sets.c.name == name)).mappings().one_or_none()
    if row is None:
        return None
    return DataSetRecord(row["name"], row["request_id"], row["registered_at"], _partitions(connection, name))


def data_page(connection: Connection, name: str, paging: Paging) -> Page[DataSetRecord]:
    """Data sets by name; with `name` that one only."""
    query = select(data_sets).order_by(data_sets.c.name).limit(paging.size + 1)
    if name:
        query = query.where(data_sets.c.name == name)
    after = paging.after(str)
    if after:
        query = query.where(data_sets.c.name > after[0])
    rows = connection.execute(query).mappings().all()
    return cut(
        rows,
        paging,
        lambda row: (row["name"],),
        lambda row: DataSetRecord(
            row["name"], row["request_id"], row["registered_at"], _partitions(connection, row["name"])
        ),
    )


def _partitions(connection: Connection, name: str) -> tuple[PartitionRecord, ...]:
    replicas: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
    where = data_replicas.c.data_set == name
    for row in connection.execute(select(data_replicas).where(where).order_by(data_replicas.c.node)).mappings():
        replicas[row["partition"]].append((row["node"], row["path"]))
    query = select(data_partitions).where(data_partitions.c.data_set == name).order_by(data_partitions.c.ordinal)
    return tuple(
        PartitionRecord(
            row["name"],
            row["size_bytes"],
            row["sha256"],
            row["examples"],
            row["url"],
            tuple(replicas[row["ordinal"]]),
        )
        for row in connection.execute(query).mappings()
    )
