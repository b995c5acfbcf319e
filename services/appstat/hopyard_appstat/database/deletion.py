"""Deletion of streams, and the storage that streams use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, delete, exists, func, select

from hopyard_appstat.database.schema import (
    blob_owners,
    blobs,
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


@dataclass(frozen=True, slots=True)
class StreamRows:
    """What belongs to a stream.

    Attributes:
        stream: Id of the stream.
        experiments: Ids of its experiments.
        bundles: Hashes of their code bundles.
    """

    stream: str
    experiments: tuple[str, ...]
    bundles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BlobTotals:
    """Numbers and bytes of the blobs of one owner.

    Attributes:
        own: Number of blobs that have no other owner.
        own_bytes: Their bytes.
        shared: Number of blobs that have other owners, too.
        shared_bytes: Their bytes.
        sharers: The other owners of these blobs, sorted; empty also where they were not determined.
    """

    own: int = 0
    own_bytes: int = 0
    shared: int = 0
    shared_bytes: int = 0
    sharers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StorageUse:
    """The storage that a stream uses in the database and in the store.

    Attributes:
        stream: Id of the stream.
        jobs: Number of rows of jobs of its experiments.
        reports: Number of rows of statistics of its experiments.
        records: Number of its records in the journal.
        journal_bytes: Bytes of the contents of these records.
        blobs: The blobs that the stream owns: its snapshots.
        bundle_bytes: Bytes of the code bundles that `StreamRows` names.
    """

    stream: str
    jobs: int = 0
    reports: int = 0
    records: int = 0
    journal_bytes: int = 0
    blobs: BlobTotals = BlobTotals()
    bundle_bytes: int = 0


def delete_stream(connection: Connection, stream: str, names: Sequence[str]) -> None:
    """Delete a stream, its journal records, and the rows of its experiments and their jobs, statistics and search plan.

    Nodes of the search plan through which no trial of another experiment passes are deleted, too. Scaling profiles stay, because
    other experiments with the same code use them. A stream that does not exist is no error. The caller ensures that it has ended.

    Args:
        connection: Connection with a transaction that may write.
        stream: Id of the stream.
        names: Ids of its experiments.
    """
    delete_rows(connection, names)
    connection.execute(delete(journal).where(journal.c.stream == stream))
    connection.execute(delete(streams).where(streams.c.name == stream))


def delete_rows(connection: Connection, names: Sequence[str], *, profiles: bool = False) -> None:
    """Delete the rows of experiments and their jobs, statistics and search plan, but not their journal.

    Nodes of the search plan through which no trial of another experiment passes are deleted, too.

    Args:
        connection: Connection with a transaction that may write.
        names: Ids of the experiments.
        profiles: Whether to delete also the scaling profiles that the experiments measured.
    """
    way = plan_stretches.c
    passed = set(connection.scalars(select(way.node).where(way.experiment.in_(names)).distinct()))
    for table in (jobs, statistics, plan_stretches, plan_snapshots, *([scaling] if profiles else [])):
        connection.execute(delete(table).where(table.c.experiment.in_(names)))
    connection.execute(delete(experiments).where(experiments.c.id.in_(names)))
    for key in sorted(passed):
        unused = ~exists().where(way.node == key)
        connection.execute(delete(plan_nodes).where(plan_nodes.c.key == key, unused))


def blobs_of_owner(
    connection: Connection, owner: str, hashes: Sequence[str] = ()
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the sizes in bytes of the blobs of an owner by hash: first of those without, then of those with another owner.

    Args:
        connection: Connection to read on.
        owner: The owner. Without blobs, both dicts are empty.
        hashes: Hashes of the blobs to consider; those that the owner does not have are left out. Empty: all blobs of the owner.
    """
    mine, all_owners = blob_owners.alias(), blob_owners.alias()
    query = (
        select(blobs.c.sha256, blobs.c.size_bytes, func.count())
        .join(mine, mine.c.sha256 == blobs.c.sha256)
        .join(all_owners, all_owners.c.sha256 == blobs.c.sha256)
        .where(mine.c.owner == owner)
        .group_by(blobs.c.sha256, blobs.c.size_bytes)
    )
    if hashes:
        query = query.where(blobs.c.sha256.in_(hashes))
    own, shared = dict[str, int](), dict[str, int]()
    for sha256, size, owners in connection.execute(query):
        (own if owners == 1 else shared)[sha256] = size
    return own, shared


def storage_of(connection: Connection, wanted: Iterable[StreamRows]) -> list[StorageUse]:
    """Return the storage that each of the streams `wanted` uses, in their order. A stream that does not exist uses none."""
    return [_storage_of(connection, one) for one in wanted]


def _storage_of(connection: Connection, rows: StreamRows) -> StorageUse:
    counts = {
        table.name: connection.scalar(select(func.count()).where(table.c.experiment.in_(rows.experiments))) or 0
        for table in (jobs, statistics)
    }
    written = select(func.count(), func.sum(func.length(journal.c.payload))).where(journal.c.stream == rows.stream)
    records, size = connection.execute(written).one()
    code = select(func.sum(blobs.c.size_bytes)).where(blobs.c.sha256.in_(rows.bundles))
    found = StorageUse(
        rows.stream,
        counts[jobs.name],
        counts[statistics.name],
        records,
        size or 0,
        _blob_totals(connection, rows.stream),
    )
    return replace(found, bundle_bytes=connection.scalar(code) or 0)


def _blob_totals(connection: Connection, stream: str) -> BlobTotals:
    own, shared = blobs_of_owner(connection, stream)
    mine, other = blob_owners.alias(), blob_owners.alias()
    sharing = (
        select(other.c.owner)
        .join(mine, mine.c.sha256 == other.c.sha256)
        .where(mine.c.owner == stream, other.c.owner != stream)
        .distinct()
        .order_by(other.c.owner)
    )
    return BlobTotals(
        len(own), sum(own.values()), len(shared), sum(shared.values()), tuple(connection.scalars(sharing))
    )
