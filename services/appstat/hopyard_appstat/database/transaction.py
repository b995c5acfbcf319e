"""The write operations of a transaction: epochs, journal, projections, index of blobs, data set catalog.

Each operation checks its input before it writes. An operation that is refused therefore has no effect on other operations in the same
transaction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from sqlalchemy import Connection, Table, delete, select

from hopyard.errors import Aborted, Conflict, InvalidInput, StaleEpoch
from hopyard_appstat.database import datasets, search_plan, statements
from hopyard_appstat.database.deletion import delete_rows, delete_stream
from hopyard_appstat.database.record_chain import START, checksum
from hopyard_appstat.database.schema import blob_owners, blobs, epochs, experiments, jobs, journal, scaling, statistics
from hopyard_appstat.projections import Append, ProjectedRows
from hopyard_appstat.rows import Row

MAX_PAYLOAD_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of a record's payload in bytes, so that a page of the journal always fits into a message."""


class Transaction:
    """One database transaction, in which several operations of different clients may be executed.

    Args:
        connection: Connection on which the transaction has begun.
        now: Current time in seconds since the Unix epoch.

    Attributes:
        touched: Ids of experiments to which the transaction adds statistics.
    """

    def __init__(self, connection: Connection, *, now: float) -> None:
        self._connection = connection
        self._now = now
        self._ends: dict[str, tuple[int, str]] = {}
        """Length and head (checksum of the last record) by stream."""
        self._newest: int | None = None
        self.touched: set[str] = set()

    # ------------------------------------------------------------------------------------------------------ epochs

    def begin_epoch(self, holder: str) -> int:
        """Begin a new epoch of the scheduler, and return its number. `holder` describes the scheduler, for error messages."""
        result = self._connection.execute(epochs.insert().values(holder=holder, began_at=self._now))
        assert result.inserted_primary_key is not None
        epoch = int(result.inserted_primary_key[0])
        self._newest = epoch
        return epoch

    def _check_epoch(self, epoch: int) -> None:
        if self._newest is None:
            self._newest = statements.first(self._connection, statements.NEWEST_EPOCH, {})[0] or 0
        if epoch < self._newest:
            holder = self._connection.scalar(select(epochs.c.holder).where(epochs.c.epoch == self._newest))
            raise StaleEpoch(
                f"epoch {epoch} is over: epoch {self._newest} (of {holder!r}) is the newest; this scheduler must "
                "stop writing"
            )
        if epoch > self._newest or epoch < 1:
            raise Conflict(f"epoch {epoch} was never begun here, the newest is {self._newest}: call BeginEpoch first")

    # ----------------------------------------------------------------------------------------------------- journal

    def append(self, append: Append) -> None:
        """Append records to the journal, apply their projections, and delete streams.

        A batch that is already in the journal changes nothing.

        Raises:
            StaleEpoch: A newer epoch has begun.
            Conflict: The epoch was never begun.
            InvalidInput: The records are not contiguous, or a value is out of range.
            Aborted: The batch does not begin at the next position of a stream, and is not already in the journal.
        """
        self._check_epoch(append.epoch)
        batches = _by_stream(append.records)
        present = [stream for stream, records in batches.items() if records[0]["position"] <= self._length(stream)]
        if present:
            self._check_repeated(batches)
            return  # The projections were applied with the records, and newer ones may have replaced them.
        for stream, records in batches.items():
            if records[0]["position"] != self._length(stream) + 1:
                raise Aborted(
                    f"stream {stream!r} stands at {self._length(stream)}, so the next position is "
                    f"{self._length(stream) + 1}; the batch begins at {records[0]['position']}"
                )
        self._write_records(batches)
        self._project(append.projected)
        for stream, names in append.deleted:
            delete_stream(self._connection, stream, names)
            self._ends[stream] = 0, START

    def import_journal(self, parts: Callable[[], Iterable[Append]]) -> None:
        """Write complete streams that do not exist yet, after checking all parts. An import that was already written changes nothing.

        Args:
            parts: Returns an iterator over the parts of the import, in order; each call starts at the first part.

        Raises:
            StaleEpoch, Conflict, InvalidInput: As in `append`.
            Aborted: One of the streams exists with other records.
        """
        ends: dict[str, int] = {}
        for part in parts():
            self._check_epoch(part.epoch)
            for stream, records in _by_stream(part.records).items():
                if records[0]["position"] != ends.get(stream, 0) + 1:
                    raise InvalidInput(
                        f"stream {stream!r}: found position {records[0]['position']}, allowed is "
                        f"{ends.get(stream, 0) + 1}: an import begins at 1 and has no gaps"
                    )
                ends[stream] = records[-1]["position"]
        if any(self._length(stream) for stream in ends):
            for part in parts():
                self._check_repeated(_by_stream(part.records))
            return
        for part in parts():
            self._write_records(_by_stream(part.records))
            self._project(part.projected)

    def replace_projections(self, parts: Callable[[], Iterable[Append]]) -> None:
        """Delete all rows that follow from the journals of streams, and write the given ones, after checking all parts.

        Args:
            parts: Returns an iterator over the parts of the request, in order; each call starts at the first part.

        Raises:
            StaleEpoch, Conflict: As in `append`.
            Aborted: A stream has another length than the request says.
        """
        for part in parts():
            self._check_epoch(part.epoch)
            for stream, length, _ in part.replaced:
                if self._length(stream) != length:
                    raise Aborted(
                        f"stream {stream!r} has {self._length(stream)} records, and the rows follow from {length}; read it again"
                    )
        for part in parts():
            for _, _, names in part.replaced:
                delete_rows(self._connection, names, profiles=True)
            self._project(part.projected)

    def _length(self, stream: str) -> int:
        return self._end(stream)[0]

    def _end(self, stream: str) -> tuple[int, str]:
        if stream not in self._ends:
            found = statements.first(self._connection, statements.END, {"stream_name": stream})
            self._ends[stream] = (0, START) if found is None else (found[0], found[1])
        return self._ends[stream]

    def _check_repeated(self, batches: Mapping[str, list[Row]]) -> None:
        """Raise `Aborted` unless the journal contains all records of the batches, unchanged. `batches` has the records by stream."""
        for stream, records in batches.items():
            first, last = records[0]["position"], records[-1]["position"]
            if last > self._length(stream):
                raise Aborted(
                    f"stream {stream!r} stands at {self._length(stream)}; the batch has positions {first} to "
                    f"{last}, and a "
                    "part of it is there already: another writer was faster"
                )
            query = (
                select(journal)
                .where(journal.c.stream == stream, journal.c.position.between(first, last))
                .order_by(journal.c.position)
            )
            for row, record in zip(self._connection.execute(query), records, strict=True):
                if dict(row._mapping) != {**record, "checksum": row.checksum}:
                    raise Aborted(
                        f"stream {stream!r} has another record at position {record['position']}: found {row.kind!r}, "
                        f"the batch has {record['kind']!r}; another writer was faster"
                    )

    def _write_records(self, batches: Mapping[str, list[Row]]) -> None:
        new: list[dict[str, Any]] = []
        old: list[dict[str, Any]] = []
        values: list[Row] = []
        for stream, records in batches.items():
            length, head = self._end(stream)
            for record in records:
                head = checksum(head, record)
                values.append({**record, "checksum": head})
            self._ends[stream] = end = records[-1]["position"], head
            if length:
                old.append({"stream_name": stream, "stream_length": end[0], "stream_head": end[1]})
            else:
                new.append({"name": stream, "length": end[0], "head": end[1]})
        statements.execute(self._connection, statements.ADD_STREAM, new)
        statements.execute(self._connection, statements.SET_END, old)
        statements.execute(self._connection, statements.ADD_RECORD, values)

    def _project(self, projected: ProjectedRows) -> None:
        tables: tuple[tuple[Table, tuple[str, ...], Mapping[Any, Row]], ...] = (
            (experiments, ("id",), projected.experiments),
            (jobs, ("experiment", "id"), projected.jobs),
            (scaling, ("training", "hardware", "slots"), projected.scaling),
        )
        for table, key, rows in tables:
            statements.upsert(self._connection, table, key, [*rows.values()], replace=True)
        gone = [{"of_experiment": experiment, "job_id": job} for experiment, job in projected.deleted_jobs]
        statements.execute(self._connection, statements.DELETE_JOB, gone)
        key = ("experiment", "job", "position", "part")
        statements.upsert(self._connection, statistics, key, projected.statistics, replace=False)
        search_plan.write(self._connection, projected.plan_paths, [*projected.plan_snapshots.values()])
        self.touched.update(row["experiment"] for row in projected.statistics)

    # ------------------------------------------------------------------------------------------------------- blobs

    def own_blobs(self, owner: str, sizes: Mapping[str, int]) -> None:
        """Add an owner to blobs, and record the current time as the time of their last use. Blobs that are new to the index are added.

        Args:
            owner: The owner.
            sizes: Size of each blob in bytes, by hash.
        """
        rows = [{"sha256": one, "size_bytes": size, "created_at": self._now} for one, size in sizes.items()]
        statements.upsert(self._connection, blobs, ("sha256",), rows, replace=True)
        owners = [{"sha256": one, "owner": owner} for one in sizes]
        statements.upsert(self._connection, blob_owners, ("sha256", "owner"), owners, replace=False)

    def disown_blobs(self, owner: str, hashes: Iterable[str], unwanted_seconds: float = 0.0) -> tuple[str, ...]:
        """Remove an owner from blobs, remove the blobs that have no owner left from the index, and return the hashes of these.

        The bytes of the blobs are not deleted here.

        Args:
            owner: The owner to remove.
            hashes: Hashes of the blobs.
            unwanted_seconds: Blobs for which `own_blobs` was called less than this number of seconds ago stay unchanged and keep the
                owner; 0: no blob is excepted.
        """
        named = list(dict.fromkeys(hashes))
        if unwanted_seconds > 0:
            young = select(blobs.c.sha256).where(
                blobs.c.sha256.in_(named), blobs.c.created_at > self._now - unwanted_seconds
            )
            wanted = set(self._connection.scalars(young))
            named = [one for one in named if one not in wanted]
        owners = blob_owners.c
        self._connection.execute(delete(blob_owners).where(owners.owner == owner, owners.sha256.in_(named)))
        needed = set(self._connection.scalars(select(owners.sha256).where(owners.sha256.in_(named))))
        orphans = tuple(one for one in named if one not in needed)
        self._connection.execute(delete(blobs).where(blobs.c.sha256.in_(orphans)))
        return orphans

    # ----------------------------------------------------------------------------------------------------- catalog

    def put_data(self, data: Row) -> Row:
        """Add a data set to the catalog, and return it as stored. If the data set was added with the same request id, change nothing.

        Raises:
            AlreadyExists: Another request added a data set of this name.
            InvalidInput: The name or the request id is empty, or a partition has two replicas on one node.
        """
        return datasets.put(self._connection, data)

    def forget_data(self, name: str) -> None:
        """Delete a data set with its partitions and replicas from the catalog, if it exists; files on nodes are kept."""
        datasets.forget(self._connection, name)


def _by_stream(records: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the records grouped by stream, after checking them.

    Raises:
        InvalidInput: A record has no stream, a time that is not finite or a payload that is too large, or positions of a stream are not
            contiguous.
    """
    batches: dict[str, list[Row]] = {}
    for index, record in enumerate(records):
        place = f"records[{index}]"
        if not record["stream"]:
            raise InvalidInput(f"{place}.stream: found nothing, allowed is a stream's name")
        if not math.isfinite(record["at"]):
            raise InvalidInput(f"{place}.at: found {record['at']}, allowed is a finite time")
        if len(record["payload"]) > MAX_PAYLOAD_BYTES:
            raise InvalidInput(
                f"{place}.payload: found {len(record['payload'])} bytes, allowed are {MAX_PAYLOAD_BYTES} at most"
            )
        batch = batches.setdefault(record["stream"], [])
        expected = batch[-1]["position"] + 1 if batch else max(1, record["position"])
        if record["position"] != expected:
            raise InvalidInput(
                f"{place}.position: found {record['position']}, allowed is {expected}: no gaps, no repeats"
            )
        batch.append(record)
    return batches
