"""Writes and queries of the data set catalog: data sets, their partitions, and the replicas of partitions on nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, delete, select

from hopyard.errors import AlreadyExists, InvalidInput
from hopyard_appstat.database.schema import data_partitions, data_replicas, data_sets
from hopyard_appstat.pagination import Page, PageRequest, cut
from hopyard_appstat.rows import Row

_TABLES = (data_sets, data_partitions, data_replicas)


def put(connection: Connection, data: Row) -> Row:
    """Add a data set to the catalog, and return it as stored.

    A request with the same name and the same request id as a stored data set is a repetition: it changes nothing.

    Args:
        connection: Connection with a transaction that may write.
        data: Row of the data set with the keys `name` and `request_id` (the idempotency key), and the rows of its partitions and their
            replicas (`data_set_row`).

    Raises:
        AlreadyExists: Another request added a data set of this name.
        InvalidInput: The name or the request id is empty, or a partition has two replicas on one node.
    """
    name = data["name"]
    if not (name and data["request_id"]):
        raise InvalidInput("data: a name and a request_id are required")
    for index, one in enumerate(data["partitions"]):
        if len({replica["node"] for replica in one["replicas"]}) < len(one["replicas"]):
            raise InvalidInput(
                f"data.partitions[{index}].replicas: found a node twice, allowed is one replica on a node"
            )
    known = _get(connection, name)
    if known is not None:
        if known["request_id"] == data["request_id"]:
            return known
        raise AlreadyExists(f"there is a data set {name!r} already")
    partitions, replicas = [], []
    for ordinal, one in enumerate(data["partitions"]):
        own = {key: value for key, value in one.items() if key != "replicas"}
        partitions.append({"data_set": name, "ordinal": ordinal, **own})
        replicas += [{"data_set": name, "partition": ordinal, **replica} for replica in one["replicas"]]
    own = {key: value for key, value in data.items() if key != "partitions"}
    for table, rows in ((data_sets, [own]), (data_partitions, partitions), (data_replicas, replicas)):
        if rows:
            connection.execute(table.insert(), rows)
    return data


def forget(connection: Connection, name: str) -> None:
    """Delete a data set with its partitions and replicas from the catalog, if it exists; files on nodes are kept."""
    for table in _TABLES:
        column = table.c.name if table is data_sets else table.c.data_set
        connection.execute(delete(table).where(column == name))


def data_page(connection: Connection, name: str, paging: PageRequest) -> Page[Row]:
    """Return a page of the data sets, ordered by name. If `name` is not empty, only the data set of that name."""
    query = select(data_sets).order_by(data_sets.c.name).limit(paging.size + 1)
    if name:
        query = query.where(data_sets.c.name == name)
    after = paging.after(str)
    if after:
        query = query.where(data_sets.c.name > after[0])
    page = cut(connection.execute(query).mappings().all(), paging, lambda row: (row["name"],))
    return Page(tuple(_whole(connection, row) for row in page.items), page.next_token)


def _get(connection: Connection, name: str) -> Row | None:
    row = connection.execute(select(data_sets).where(data_sets.c.name == name)).mappings().one_or_none()
    return None if row is None else _whole(connection, row)


def _whole(connection: Connection, row: Mapping[Any, Any]) -> Row:
    """Return the data set of `row`, a row of the table `data_sets`, with the rows of its partitions and their replicas."""
    replicas: defaultdict[int, list[Row]] = defaultdict(list)
    found = select(data_replicas).where(data_replicas.c.data_set == row["name"]).order_by(data_replicas.c.node)
    for one in connection.execute(found):
        replicas[one.partition].append({"node": one.node, "path": one.path})
    columns = [one for one in data_partitions.c if one.name not in ("data_set", "ordinal")]
    query = select(*columns).where(data_partitions.c.data_set == row["name"]).order_by(data_partitions.c.ordinal)
    partitions = [
        {**one, "replicas": replicas[ordinal]} for ordinal, one in enumerate(connection.execute(query).mappings())
    ]
    return {**row, "partitions": partitions}
