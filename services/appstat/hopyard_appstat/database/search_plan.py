"""Writes and queries of the search plan in the database (Hippo, section 3.2).

A *trial* is the training of one job. The search plan is a tree that merges the trainings of trials as long as they are equal. A *node*
of it stands for training from a start position with fixed values or functions of the hyperparameters. A node has no end: other nodes
may branch off at any later position. Its *key* is a hash, equal for equal trainings. All nodes with the same code, program and training
seed have the same *root*. The path of a trial from position 0 consists of *segments*, one in each node that it passes through.

The results of a node are the statistics of the trials that pass through it, so they are stored only once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, delete, func, select, tuple_

from hopyard.errors import NotFound
from hopyard_appstat.database import statements
from hopyard_appstat.database.schema import blob_owners, plan_nodes, plan_snapshots, plan_stretches, statistics
from hopyard_appstat.pagination import Page, PageRequest, cut
from hopyard_appstat.rows import Row


@dataclass(frozen=True, slots=True)
class NodeDetails:
    """The rows of one node of the search plan.

    Attributes:
        node: The node.
        references: The trials that pass through the node, each with the end of its segment.
        snapshots: Snapshots in the store of these trials at positions in the node.
    """

    node: Row
    references: Sequence[Row]
    snapshots: Sequence[Row]


def write(connection: Connection, paths: Mapping[tuple[str, str], Sequence[Row]], snapshots: Sequence[Row]) -> None:
    """Replace the paths of trials, and add snapshots.

    Args:
        connection: Connection with a transaction that may write.
        paths: The segments of each trial's path, by (experiment, job).
        snapshots: Rows of snapshots in the store; a row of the same trial and position is replaced.
    """
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


def nodes_page(connection: Connection, root: str, paging: PageRequest) -> Page[Row]:
    """Return a page of the search plan's nodes with the root `root`, ordered by (start position, key).

    The root and the key are hashes: all nodes with the same code, program and training seed have the same root; the key identifies
    the node.
    """
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
    """Return the node with the hash `key`, the trials that pass through it (references), and their snapshots in it, without results.

    A snapshot is in the node if its position is in the segment that its trial has there.

    Raises:
        NotFound: No node has this key.
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


def results_page(connection: Connection, key: str, paging: PageRequest) -> Page[Row]:
    """Return a page of the results (statistics) of the node `key`, ordered by (position, experiment, job, part)."""
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
    """Return the SQL condition that a row of `table` belongs to a segment in the same query: same trial, position in the segment.

    `table` has the columns experiment, job and position. The segments are the rows of the table `plan_stretches`.
    """
    way = plan_stretches.c
    same = and_(table.c.experiment == way.experiment, table.c.job == way.job)
    return and_(same, table.c.position > way.start, table.c.position <= way.end)


def _measured(connection: Connection, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return computed columns of nodes, by the node's key.

    `references`: number of trials that pass through the node. `wanted`: largest end of their segments in the node. `reached`: largest
    position with a report in the node. `report_seconds`: mean training time in seconds from one report to the next, over all reports in
    the node. Nodes without trials are missing in the result. For nodes without reports, `reached` and `report_seconds` are missing.
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
