"""Checks the rows of one stream in AppStat, or of all streams, against the journal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hopyard.errors import DataLoss, NotFound
from hopyard.v1 import appstat_pb2, common_pb2
from hopyard_engine.core import CLUSTER_STREAM
from hopyard_engine.journal.format import RecordError
from hopyard_scheduler.runtime.journal_rows import JournalRows, RowKey, key_of
from hopyard_tools.projections.comparison import RowDifference, compare

if TYPE_CHECKING:
    from hopyard.v1.appstat_pb2_grpc import AppStatServiceAsyncStub


class _DamagedJournal(Exception):
    """The journal of a stream cannot be read, because of the damage that is the text."""


@dataclass(frozen=True, slots=True)
class StreamCheck:
    """The result of the check of one stream.

    Attributes:
        stream: Id of the stream.
        length: Number of records from which the rows follow.
        experiments: Ids of its experiments.
        names: Names of its experiments.
        rows: The rows that follow from its journal, by key.
        found: The rows of AppStat, by key.
        differences: The differences between them.
        damage: Why the journal cannot be read; empty: it was read. There are no rows then, and only those experiments that AppStat has
            readable rows of, or that are in the records before the damage.
    """

    stream: str
    length: int = 0
    experiments: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    rows: dict[RowKey, appstat_pb2.Projection] = field(default_factory=dict)
    found: dict[RowKey, appstat_pb2.Projection] = field(default_factory=dict)
    differences: tuple[RowDifference, ...] = ()
    damage: str = ""

    def is_named(self, name: str) -> bool:
        """Return whether `name` is the id of the stream, or the id or name of one of its experiments."""
        return name in {self.stream, *self.experiments, *self.names}

    def without_rows(self) -> StreamCheck:
        """Return the result without the rows, which may need much memory."""
        return replace(self, rows={}, found={})


async def check_stream(stub: AppStatServiceAsyncStub, stream: str) -> StreamCheck:
    """Compare the rows of a stream in AppStat with those that follow from its journal. The scheduler may write at the same time.

    Args:
        stub: Client of AppStat.
        stream: Id of the stream.

    Raises:
        NotFound: The stream has no records, because it was deleted or does not exist.
        DataLoss: The database cannot be read. Damage of the journal is no error, but `StreamCheck.damage`.
    """
    made = JournalRows()
    try:
        await _read(stub, stream, made)
        while True:  # Again if an experiment has joined the stream meanwhile.
            if not made.length:
                raise NotFound(f"stream {stream} has no records")
            rows = made.table().rows
            experiments = tuple(made.experiments)
            trainings = sorted({key[1] for key in rows if key[0] == "scaling"})
            length, found, damaged = await _projections(stub, stream, experiments, trainings)
            if length < made.length:  # It was deleted, and created anew or not.
                made = JournalRows()
                await _read(stub, stream, made)
                continue
            await _read(stub, stream, made, length)
            rows = made.table().rows
            if experiments == tuple(made.experiments) and trainings == sorted(
                {k[1] for k in rows if k[0] == "scaling"}
            ):
                break
    except _DamagedJournal as damage:
        return await _damaged(stub, stream, made, str(damage))
    rows = with_quarantined(rows, dict(found))
    differences = tuple(compare(rows, found, damaged, experiments))
    return StreamCheck(stream, made.length, experiments, _names(rows), rows, dict(found), differences)


async def _damaged(stub: AppStatServiceAsyncStub, stream: str, made: JournalRows, damage: str) -> StreamCheck:
    """Return the result for a stream whose journal cannot be read. Its experiments are found by their rows and the records before."""
    names: dict[str, str] = {}
    request = appstat_pb2.QueryExperimentsRequest()
    while True:
        page = await stub.QueryExperiments(request)
        found = (*page.experiments, *page.damaged)
        names |= {one.id: one.name for one in found if (one.group or one.id) == stream}
        request.page_token = page.next_page_token
        if not request.page_token:
            break
    for key, row in made.table().rows.items():
        if key[0] == "experiment":
            names.setdefault(row.experiment.id, row.experiment.name)
    return StreamCheck(stream, experiments=tuple(names), names=tuple(names.values()), damage=damage)


def _names(rows: Mapping[RowKey, appstat_pb2.Projection]) -> tuple[str, ...]:
    return tuple(row.experiment.name for row in rows.values() if row.HasField("experiment"))


def with_quarantined(
    rows: Mapping[RowKey, appstat_pb2.Projection], found: Mapping[RowKey, appstat_pb2.Projection]
) -> dict[RowKey, appstat_pb2.Projection]:
    """Return the rows that follow from a journal. Those of quarantined experiments and their jobs are the found ones.

    An error of the engine fails an experiment without a record, so its journal does not say so.

    Args:
        rows: The rows that follow from the journal.
        found: The rows of AppStat.
    """
    failed = {
        row.experiment.id
        for row in found.values()
        if row.HasField("experiment") and row.experiment.reason_code == common_pb2.REASON_CODE_ENGINE_ERROR
    }
    kept = {key: row for key, row in found.items() if key[0] in ("experiment", "job") and key[1] in failed}
    return {**{k: row for k, row in rows.items() if not (k[0] in ("experiment", "job") and k[1] in failed)}, **kept}


async def check_all(stub: AppStatServiceAsyncStub) -> AsyncIterator[StreamCheck]:
    """Check all streams of experiments, in the order of their ids. Streams that are deleted meanwhile are left out.

    Raises:
        DataLoss: The database cannot be read.
    """
    token = ""
    while True:
        page = await stub.ListStreams(appstat_pb2.ListStreamsRequest(page_token=token))
        for info in page.streams:
            if info.stream != CLUSTER_STREAM:
                try:
                    yield await check_stream(stub, info.stream)
                except NotFound:
                    continue
        token = page.next_page_token
        if not token:
            return


async def _read(stub: AppStatServiceAsyncStub, stream: str, made: JournalRows, until: int | None = None) -> None:
    """Apply the records of a stream after those that were applied, up to number `until`; None: to its present end.

    Raises:
        _DamagedJournal: The records cannot be read.
    """
    if until is not None and made.length >= until:
        return
    request = appstat_pb2.ReadJournalRequest(stream=stream, from_position=made.length + 1)
    call = stub.ReadJournal(request)
    try:
        async for response in call:
            for record in response.records:
                if until is not None and record.position > until:
                    call.cancel()
                    return
                made.take(record)
    except (DataLoss, RecordError) as error:
        raise _DamagedJournal(str(error)) from error


async def _projections(
    stub: AppStatServiceAsyncStub, stream: str, experiments: tuple[str, ...], trainings: list[str]
) -> tuple[int, list[tuple[RowKey, appstat_pb2.Projection]], list[appstat_pb2.DamagedRow]]:
    """Return the length of a stream, its rows in AppStat with their keys, and its unreadable rows, from one state of the database."""
    request = appstat_pb2.ReadProjectionsRequest(stream=stream, experiments=experiments, trainings=trainings)
    length, found, damaged = 0, list[tuple[RowKey, appstat_pb2.Projection]](), list[appstat_pb2.DamagedRow]()
    async for response in stub.ReadProjections(request):
        length = response.length
        found += [(key_of(row), row) for row in response.projections]
        damaged += response.damaged
    return length, found, damaged
