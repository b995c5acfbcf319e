"""The queries of the journal, statistics, projections and the blob index. They run on a read-only connection.

Functions named `..._page` return one page of a list; see `hopyard_appstat.pagination`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, Table, func, select, tuple_

from hopyard.errors import DataLoss
from hopyard_appstat.database.record_chain import RESTORE, START
from hopyard_appstat.database.schema import (
    blob_owners,
    blobs,
    clusters,
    experiments,
    jobs,
    journal,
    plan_nodes,
    plan_snapshots,
    plan_stretches,
    scaling,
    statistics,
    streams,
)
from hopyard_appstat.pagination import Page, PageRequest, cut
from hopyard_appstat.rows import Row

_READ_BYTES = 1024 * 1024
_READ_ROWS = 500


def cluster_of(connection: Connection) -> str:
    """Return the id of the cluster to which the database belongs. Errors as for `identity_of`."""
    return identity_of(connection)[0]


def identity_of(connection: Connection) -> tuple[str, str]:
    """Return the id of the cluster to which the database belongs, and the id of its history.

    Raises:
        DataLoss: The database has no id, or several.
    """
    found = connection.execute(select(clusters.c.id, clusters.c.history)).all()
    if len(found) != 1:
        raise DataLoss(f"the table clusters has {len(found)} rows, needed is one; {RESTORE}")
    return str(found[0].id), str(found[0].history)


def end_of(connection: Connection, stream: str) -> tuple[int, str]:
    """Return the position and the checksum of the stream's last record; 0 and "" if the stream does not exist.

    Raises:
        DataLoss: The stream has records, but its row is missing.
    """
    found = connection.execute(select(streams.c.length, streams.c.head).where(streams.c.name == stream)).one_or_none()
    if found is not None:
        return found.length, found.head
    if checksum_of(connection, stream, 1) is not None:
        raise DataLoss(f"journal of {stream}: its row is missing; {RESTORE}")
    return 0, START


def checksum_of(connection: Connection, stream: str, position: int) -> str | None:
    """Return the checksum of a record; None: there is no such record."""
    return connection.scalar(
        select(journal.c.checksum).where(journal.c.stream == stream, journal.c.position == position)
    )


def journal_part(connection: Connection, stream: str, first: int, last: int) -> tuple[Row, ...]:
    """Return the records of a stream from position `first` to position `last` (inclusive), in order.

    At most about 1 MiB of records is returned, but always at least one record if there is any. Empty: there are no such records.
    """
    query = (
        select(journal)
        .where(journal.c.stream == stream, journal.c.position.between(first, last))
        .order_by(journal.c.position)
    )
    records: list[Row] = []
    size = 0
    with connection.execution_options(yield_per=64).execute(query).mappings() as rows:
        for record in rows:
            size += len(record["payload"]) + 64
            if records and size > _READ_BYTES:
                break
            records.append(record)
    return tuple(records)


@dataclass(frozen=True, slots=True)
class StreamProjections:
    """The rows that follow from the journal of a stream, from one state of the database.

    The rows are read while they are iterated, once and within the transaction, so that only some of them are in memory.

    Attributes:
        length: Number of records of the stream.
        experiments: Rows of experiments.
        jobs: Rows of jobs.
        statistics: Rows of statistics.
        scaling: Rows of scaling profiles.
        stretches: The segments of trials in the search plan, by trial, each with the columns of its node, null without a node.
        snapshots_of: Returns the rows of the snapshots of one trial in the search plan: of an experiment and a job.
        other_snapshots: Rows of snapshots of trials without segments, by trial.
    """

    length: int
    experiments: Iterator[Row]
    jobs: Iterator[Row]
    statistics: Iterator[Row]
    scaling: Iterator[Row]
    stretches: Iterator[Row]
    snapshots_of: Callable[[str, str], Iterator[Row]]
    other_snapshots: Iterator[Row]


def projections_of(
    connection: Connection, stream: str, names: Sequence[str], trainings: Sequence[str]
) -> StreamProjections:
    """Return the rows that follow from the journal of a stream.

    Args:
        connection: Connection to read on.
        stream: Id of the stream.
        names: Ids of its experiments.
        trainings: Trainings whose scaling profiles are returned, also those that other experiments measured.
    """

    def rows(query: Select[Any]) -> Iterator[Row]:
        with connection.execute(query, execution_options={"yield_per": _READ_ROWS}).mappings() as found:
            yield from found

    def of(table: Table, *order: str) -> Iterator[Row]:
        return rows(select(table).where(table.c.experiment.in_(names)).order_by(*(table.c[name] for name in order)))

    way, node = plan_stretches.c, plan_nodes.c
    path = (
        select(plan_stretches, node.root, node.parent, node.start.label("node_start"), node.values_json)
        .outerjoin(plan_nodes, way.node == node.key)
        .where(way.experiment.in_(names))
        .order_by(way.experiment, way.job, way.start)
    )
    saved = plan_snapshots.c
    in_order = select(plan_snapshots).order_by(saved.experiment, saved.job, saved.position)
    has_path = select(way.start).where(way.experiment == saved.experiment, way.job == saved.job).exists()

    def snapshots_of(experiment: str, job: str) -> Iterator[Row]:
        return rows(in_order.where(saved.experiment == experiment, saved.job == job))

    profiles = scaling.c.experiment.in_(names) | scaling.c.training.in_(trainings)
    return StreamProjections(
        end_of(connection, stream)[0],
        rows(select(experiments).where(experiments.c.id.in_(names)).order_by(experiments.c.id)),
        of(jobs, "experiment", "ordinal", "id"),
        of(statistics, "experiment", "job", "position", "part"),
        rows(select(scaling).where(profiles)),
        rows(path),
        snapshots_of,
        rows(in_order.where(saved.experiment.in_(names), ~has_path)),
    )


def stream_page(connection: Connection, paging: PageRequest) -> Page[Row]:
    """Return a page of the streams with their lengths (numbers of records), ordered by name."""
    after = paging.after(str)
    query = select(streams.c.name.label("stream"), streams.c.length).order_by(streams.c.name).limit(paging.size + 1)
    if after:
        query = query.where(streams.c.name > after[0])
    rows = connection.execute(query).mappings().all()
    return cut(rows, paging, lambda row: (row["stream"],))


def statistics_page(connection: Connection, experiment: str, job: str, paging: PageRequest) -> Page[Row]:
    """Return a page of the statistics of an experiment, or of one job if `job` is not empty, ordered by (job, position, part).

    `part` is the partition on which the report was evaluated; empty: all data.
    """
    key = (statistics.c.job, statistics.c.position, statistics.c.part)
    query = select(statistics).where(statistics.c.experiment == experiment).order_by(*key).limit(paging.size + 1)
    if job:
        query = query.where(statistics.c.job == job)
    after = paging.after(str, int, str)
    if after:
        query = query.where(tuple_(*key) > after)
    rows = connection.execute(query).mappings().all()
    return cut(rows, paging, lambda row: (row["job"], row["position"], row["part"]))


def experiments_page(connection: Connection, state: int, paging: PageRequest) -> Page[Row]:
    """Return a page of the experiments, newest first. If `state` is not 0, only those in the `ExperimentState` with that number."""
    key = (experiments.c.created_at, experiments.c.id)
    query = select(experiments).order_by(*(column.desc() for column in key)).limit(paging.size + 1)
    if state:
        query = query.where(experiments.c.state == state)
    after = paging.after(float, str)
    if after:
        query = query.where(tuple_(*key) < after)
    rows = connection.execute(query).mappings().all()
    return cut(rows, paging, lambda row: (row["created_at"], row["id"]))


def jobs_page(connection: Connection, experiment: str, paging: PageRequest) -> Page[Row]:
    """Return a page of the jobs of an experiment, in order of creation."""
    key = (jobs.c.ordinal, jobs.c.id)
    query = select(jobs).where(jobs.c.experiment == experiment).order_by(*key).limit(paging.size + 1)
    after = paging.after(int, str)
    if after:
        query = query.where(tuple_(*key) > after)
    rows = connection.execute(query).mappings().all()
    return cut(rows, paging, lambda row: (row["ordinal"], row["id"]))


def scaling_page(connection: Connection, training: str, paging: PageRequest) -> Page[Row]:
    """Return a page of the scaling profiles of a training, ordered by (hardware, slots).

    `hardware` describes the CPUs and GPUs of a kind of host as text; `slots` is the number of slots of a run. `training` is a hash of
    everything else that determines how long one unit of training takes: code, program, search space, and the numbers of CPUs and GPUs
    that the experiment requires. Trainings with the same hash share their profiles.
    """
    key = (scaling.c.hardware, scaling.c.slots)
    query = select(scaling).where(scaling.c.training == training).order_by(*key).limit(paging.size + 1)
    after = paging.after(str, int)
    if after:
        query = query.where(tuple_(*key) > after)
    rows = connection.execute(query).mappings().all()
    return cut(rows, paging, lambda row: (row["hardware"], row["slots"]))


def blobs_page(connection: Connection, paging: PageRequest) -> Page[Row]:
    """Return a page of the index of blobs, ordered by hash, each blob with its owners."""
    query = select(blobs).order_by(blobs.c.sha256).limit(paging.size + 1)
    after = paging.after(str)
    if after:
        query = query.where(blobs.c.sha256 > after[0])
    rows = connection.execute(query).mappings().all()
    owners: dict[str, list[str]] = {}
    if rows:
        named = select(blob_owners).where(blob_owners.c.sha256.between(rows[0]["sha256"], rows[-1]["sha256"]))
        for sha256, owner in connection.execute(named.order_by(blob_owners.c.sha256, blob_owners.c.owner)):
            owners.setdefault(sha256, []).append(owner)

    page = cut(rows, paging, lambda row: (row["sha256"],))
    return Page(tuple({**row, "owners": owners.get(row["sha256"], [])} for row in page.items), page.next_token)


def blobs_known(connection: Connection, hashes: tuple[str, ...]) -> set[str]:
    """Return those of the hashes whose blobs are in the index."""
    return set(connection.scalars(select(blobs.c.sha256).where(blobs.c.sha256.in_(hashes))))


def blob_sizes(connection: Connection, hashes: tuple[str, ...]) -> dict[str, int]:
    """Return the recorded sizes in bytes of those of the blobs that are in the index, by hash."""
    rows = connection.execute(select(blobs.c.sha256, blobs.c.size_bytes).where(blobs.c.sha256.in_(hashes)))
    return {row.sha256: row.size_bytes for row in rows}


def blobs_owned(connection: Connection, owner: str, hashes: tuple[str, ...]) -> set[str]:
    """Return those of the hashes whose blobs have the owner `owner`, by the index."""
    mine = blob_owners.c.owner == owner, blob_owners.c.sha256.in_(hashes)
    return set(connection.scalars(select(blob_owners.c.sha256).where(*mine)))


def newest_row(connection: Connection, experiment: str) -> int:
    """Return the row number of the experiment's last committed statistic, as a cursor for `statistics_after`; 0 if there is none."""
    return connection.scalar(select(func.max(statistics.c.row)).where(statistics.c.experiment == experiment)) or 0


def statistics_after(
    connection: Connection, experiment: str, job: str, cursor: int, limit: int
) -> tuple[tuple[Row, ...], int]:
    """Return the next statistics of an experiment in commit order, and the cursor for the next call.

    Args:
        connection: Connection to read on.
        experiment: Id of the experiment.
        job: Id of the job; empty: all jobs.
        cursor: Row number after which to read; 0: from the first statistic.
        limit: Maximum number of rows to read. Rows of other jobs count but are not returned.

    Returns:
        The statistics, and the row number of the last row that was read. If it equals `cursor`, there are no more rows. Otherwise the
        statistics may still be empty, if all rows were of other jobs.
    """
    query = (
        select(statistics)
        .where(statistics.c.experiment == experiment, statistics.c.row > cursor)
        .order_by(statistics.c.row)
        .limit(limit)
    )
    rows = connection.execute(query).mappings().all()
    # Rows of other jobs are filtered here and not in the query, so that the cursor advances past them.
    found = tuple(row for row in rows if job in ("", row["job"]))
    return found, rows[-1]["row"] if rows else cursor
