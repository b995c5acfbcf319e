"""The search plan in the database: written with the journal, queried by node (Hippo, section 3.2).

A node stands for training from a start position with a fixed set of hyperparameter functions. It has no end: other
nodes may branch off at any later position. Its results are the statistics of the trials that pass through it, so they
are stored once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, delete, func, select, tuple_

from hopyard.errors import NotFound
from hopyard_appstat.database import statements
from hopyard_appstat.database.schema import blob_owners, plan_nodes, plan_snapshots, plan_stretches, statistics
from hopyard_appstat.pagination import Page, Paging, cut
from hopyard_appstat.rows import Row


@dataclass(frozen=True, slots=True)
class NodeDetails:
    """The rows of a node of the search plan, of the trials that pass through it, and of its snapshots in the store."""

    node: Row
    references: Sequence[Row]
    snapshots: Sequence[Row]


def write(connection: Connection, paths: Mapping[tuple[str, str], Sequence[Row]], snapshots: Sequence[Row]) -> None:
    """Replaces the paths of trials, given as segments by (experiment, job), and adds snapshots."""
    stretches = [one for path in paths.values() for one in path]
    nodes = {
        one["node"]: {"key": one["node"], **{name: one[name] for name in ("root", "parent", "start", "values_json")}}
        for one in stretches
    }
    statements.upsert(connection, plan_nodes, ("key",), [*nodes.values()], replace=False)
    at = plan_stretches.c
    for experiment, job in paths:
        connection.execute(delete(plan_stretches).where(at.experiment == experiment, at.job == job))
    columns = ("experiment", "job", "start", "end", "node")
    rows = [{name: one[name] for name in columns} for one in stretches]
    statements.upsert(connection, plan_stretches, ("experiment", "job", "start"), rows, replace=True)
    statements.upsert(connection, plan_snapshots, ("experiment", "job", "position"), snapshots, replace=True)


def nodes_page(connection: Connection, root: str, paging: Paging) -> Page[Row]:
    """Returns a page of the nodes with this root, sorted by (start, key)."""
    key = (plan_nodes.c.start, plan_nodes.c.key)
    query = select(plan_nodes).where(plan_nodes.c.root == root).order_by(*key).limit(paging.size + 1)
    after = paging.after(int, str)
    if after:
        query = query.where(tuple_(*key) > after)
    rows = connection.execute(query).mappings().all()
    measures = _measured(connection, [row["key"] for row in rows])
    page = cut(rows, paging, lambda row: (row["start"], row["key"]))
    return Page(tuple(_node(row, measures) for row in page.items), page.next_token)


def node_details(connection: Connection, key: str) -> NodeDetails:
    """Returns a node with its references and snapshots, without its results.

    Raises:
        NotFound: The node does not exist.
    """
    row = connection.execute(select(plan_nodes).where(plan_nodes.c.key == key)).mappings().one_or_none()
    if row is None:
        raise NotFound(f"there is no node {key!r} in the search plan; ListPlanNodes has those below a root")
    way = plan_stretches.c
    passing = select(way.experiment, way.job, way.end).where(way.node == key).order_by(way.experiment, way.job)
    owned = and_(blob_owners.c.sha256 == plan_snapshots.c.sha256, blob_owners.c.owner == plan_snapshots.c.owner)
    columns = [one for one in plan_snapshots.c if one.name not in ("experiment", "job")]
    saved = (
        select(*columns)
        .join(plan_stretches, _within(plan_snapshots))
        .join(blob_owners, owned)
        .where(way.node == key)
        .distinct()
        .order_by(plan_snapshots.c.position, plan_snapshots.c.sha256, plan_snapshots.c.owner)
    )
    references, snapshots = (connection.execute(query).mappings().all() for query in (passing, saved))
    return NodeDetails(_node(row, _measured(connection, [key])), references, snapshots)


def results_page(connection: Connection, key: str, paging: Paging) -> Page[Row]:
    """Returns a page of the results of a node, sorted by (position, experiment, job, part)."""
    order = (statistics.c.position, statistics.c.experiment, statistics.c.job, statistics.c.part)
    query = (
        select(statistics)
        .join(plan_stretches, _within(statistics))
        .where(plan_stretches.c.node == key)
        .order_by(*order)
        .limit(paging.size + 1)
    )
    after = paging.after(int, str, str, str)
    if after:
        query = query.where(tuple_(*order) > after)
    rows = connection.execute(query).mappings().all()
    named = ("position", "experiment", "job", "part")
    return cut(rows, paging, lambda row: [row[name] for name in named])


def _within(table: Any) -> Any:
    """Returns the SQL condition that a row of `table` lies, by its position, on a segment of the same trial."""
    way = plan_stretches.c
    same = and_(table.c.experiment == way.experiment, table.c.job == way.job)
    return and_(same, table.c.position > way.start, table.c.position <= way.end)


def _measured(connection: Connection, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Returns for each node: number of references, largest wanted and reached position, mean seconds of a report.

    Nodes that no trial passes through are missing, as are `reached` and `report_seconds` of nodes without reports.
    """
    way, found = plan_stretches.c, dict[str, dict[str, Any]]()
    passing = select(way.node, func.count(), func.max(way.end)).where(way.node.in_(keys)).group_by(way.node)
    for node, references, wanted in connection.execute(passing):
        found[node] = {"references": references, "wanted": wanted}
    trained = (
        select(
            way.node,
            func.max(statistics.c.position),
            func.sum(statistics.c.seconds),
            func.count(),
        )
        .join(plan_stretches, _within(statistics))
        .where(way.node.in_(keys))
        .group_by(way.node)
    )
    for node, reached, seconds, reports in connection.execute(trained):
        found.setdefault(node, {}).update(reached=reached, report_seconds=seconds / reports)
    return found


def _node(row: Mapping[Any, Any], measures: Mapping[str, dict[str, Any]]) -> Row:
    known = {
        "references": 0,
        "wanted": row["start"],
        "reached": row["start"],
        "report_seconds": 0.0,
        **measures.get(row["key"], {}),
    }
    return {**row, **known}
