"""The search plan in the database: written with the journal, read by node (Hippo, section 3.2).

A node is what is trained from a position on as long as the same functions are in force: it has no end, others branch off it
anywhere. Its results are the statistics of the trials that pass through it, so nothing is kept twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, and_, delete, func, select, tuple_

from hopyard.errors import NotFound
from hopyard_appstat.database import statements
from hopyard_appstat.database.rows import statistic_from_row
from hopyard_appstat.database.schema import blob_owners, plan_nodes, plan_snapshots, plan_stretches, statistics
from hopyard_appstat.pagination import Paging, cut
from hopyard_appstat.records import NodeDetails, Page, PlanNode, PlanSnapshot, PlanTrial, StatisticRecord


def write(connection: Connection, trials: Sequence[PlanTrial]) -> None:
    """Note trials' ways through the plan, the last of each, and their snapshots."""
    ways = {(trial.experiment, trial.job): trial for trial in trials}
    nodes = {
        stretch.node: {
            "key": stretch.node,
            "root": trial.root,
            "parent": stretch.parent,
            "start": stretch.start,
            "values_json": stretch.values_json,
        }
        for trial in ways.values()
        for stretch in trial.path
    }
    statements.upsert(connection, plan_nodes, ("key",), [*nodes.values()], replace=False)
    for experiment, job in ways:
        at = plan_stretches.c
        connection.execute(delete(plan_stretches).where(at.experiment == experiment, at.job == job))
    stretches = [
        {"experiment": trial.experiment, "job": trial.job, "start": one.start, "end": one.end, "node": one.node}
        for trial in ways.values()
        for one in trial.path
    ]
    statements.upsert(connection, plan_stretches, ("experiment", "job", "start"), stretches, replace=True)
    saved = {
        (trial.experiment, trial.job, one.position): {
            "experiment": trial.experiment,
            "job": trial.job,
            **{name: getattr(one, name) for name in PlanSnapshot.__slots__},
        }
        for trial in trials
        for one in trial.snapshots
    }
    key = ("experiment", "job", "position")
    statements.upsert(connection, plan_snapshots, key, [*saved.values()], replace=True)


def nodes_page(connection: Connection, root: str, paging: Paging) -> Page[PlanNode]:
    """Nodes below a root by (start, key)."""
    key = (plan_nodes.c.start, plan_nodes.c.key)
    query = select(plan_nodes).where(plan_nodes.c.root == root).order_by(*key).limit(paging.size + 1)
    after = paging.after(int, str)
    if after:
        query = query.where(tuple_(*key) > after)
    rows = connection.execute(query).mappings().all()
    measures = _measured(connection, [row["key"] for row in rows])
    return cut(rows, paging, lambda row: (row["start"], row["key"]), lambda row: _node(row, measures))


def node_details(connection: Connection, key: str) -> NodeDetails:
    """A node with its references and snapshots.

    Raises:
        NotFound: There is no such node.
    """
    row = connection.execute(select(plan_nodes).where(plan_nodes.c.key == key)).mappings().one_or_none()
    if row is None:
        raise NotFound(f"there is no node {key!r} in the search plan; ListPlanNodes has those below a root")
    way = plan_stretches.c
    passing = select(way.experiment, way.job, way.end).where(way.node == key).order_by(way.experiment, way.job)
    references = tuple((one.experiment, one.job, one.end) for one in connection.execute(passing))
    owned = and_(blob_owners.c.sha256 == plan_snapshots.c.sha256, blob_owners.c.owner == plan_snapshots.c.owner)
    columns = [plan_snapshots.c[name] for name in PlanSnapshot.__slots__]
    saved = (
        select(*columns)
        .join(plan_stretches, _within(plan_snapshots))
        .join(blob_owners, owned)
        .where(way.node == key)
        .distinct()
        .order_by(plan_snapshots.c.position, plan_snapshots.c.sha256, plan_snapshots.c.owner)
    )
    snapshots = tuple(PlanSnapshot(*one) for one in connection.execute(saved))
    return NodeDetails(_node(row, _measured(connection, [key])), references, snapshots)


def results_page(connection: Connection, key: str, paging: Paging) -> Page[StatisticRecord]:
    """Results of a node by (position, experiment, job, part)."""
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
    return cut(rows, paging, lambda row: [row[name] for name in named], statistic_from_row)


def _within(table: Any) -> Any:
    """Whether a row of a trial, by its position, lies on a stretch of the same trial."""
    way = plan_stretches.c
    same = and_(table.c.experiment == way.experiment, table.c.job == way.job)
    return and_(same, table.c.position > way.start, table.c.position <= way.end)


def _measured(connection: Connection, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    """By node: its references, how far it is wanted and reached, and what a report takes."""
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


def _node(row: Mapping[Any, Any], measures: Mapping[str, dict[str, Any]]) -> PlanNode:
    known = {"references": 0, "wanted": row["start"], "reached": row["start"], **measures.get(row["key"], {})}
    return PlanNode(row["key"], row["root"], row["parent"], row["start"], row["values_json"], **known)
