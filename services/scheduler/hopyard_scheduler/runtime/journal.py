"""The scheduler's client of the journal, which the service AppStat stores."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from hopyard._net.rpc import retry
from hopyard.errors import Exhausted, StaleEpoch, TimedOut, Unavailable
from hopyard.policy.vocabulary import StreamId
from hopyard.v1 import appstat_pb2
from hopyard_engine.core.events import Event
from hopyard_engine.journal.codec import event_of
from hopyard_engine.journal.format import FORMAT, StoredRecord, check_sequence

if TYPE_CHECKING:
    from hopyard.v1 import appstat_pb2_grpc

_LOG = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """An encoded event to append to a stream.

    Attributes:
        stream: The stream of the event.
        kind: The name of the event type in the journal format.
        payload: The encoded event.
    """

    stream: StreamId
    kind: str
    payload: bytes


class Journal:
    """Reads the streams of the journal and appends records to them.

    Call `begin` before the first append, and `read` before the first append to a stream that has records.

    Each append contains this scheduler's epoch and the expected position of each record, so that two schedulers cannot
    both write. Appends are idempotent and retried while AppStat is unavailable or slow. They raise `StaleEpoch` after
    another scheduler began a newer epoch, and `Aborted` if a stream does not end at the expected position.

    Args:
        stub: Client of AppStat.

    Attributes:
        epoch: The number of this scheduler's epoch; 0 before `begin` has returned.
        cluster: The id of the cluster to which the journal belongs; empty before `begin` has returned.
        history: The id of the cluster's history, which changes when its database is restored from a backup; empty before `begin` has
            returned.
    """

    def __init__(self, stub: appstat_pb2_grpc.AppStatServiceAsyncStub) -> None:
        self._stub = stub
        self._ends: dict[str, int] = {}
        self.epoch = 0
        self.cluster = ""
        self.history = ""
        self.trouble = ""
        """Why the journal cannot be written at present; empty: it can be written. No effect is carried out meanwhile.
        """

    async def begin(self, holder: str) -> int:
        """Begin a new scheduler epoch and return its number. AppStat refuses appends of earlier epochs from then on.

        Args:
            holder: A name of this scheduler for people, such as HOST:PID.
        """
        request = appstat_pb2.BeginEpochRequest(holder=holder)
        response = await persist(lambda: self._stub.BeginEpoch(request))
        self.epoch, self.cluster, self.history = response.epoch, response.cluster, response.history
        return self.epoch

    @property
    def restored(self) -> bool:
        """Whether the database was restored from a backup at some time, so that other processes may know more than the journal."""
        return self.history != self.cluster

    async def append(
        self,
        entries: Sequence[JournalEntry],
        rows: Sequence[appstat_pb2.Projection],
        at: float,
        deleted: Sequence[appstat_pb2.DeletedStream] = (),
    ) -> None:
        """Append records, update rows and delete streams in one transaction. All is durable when it returns.

        Args:
            entries: The records, in order.
            rows: The rows of AppStat to insert or replace.
            at: Time of the records, in seconds since the Unix epoch.
            deleted: The streams to delete, with their experiments.

        Raises:
            StaleEpoch: Another scheduler has begun a newer epoch.
            Aborted: A stream does not end at the expected position.
        """
        if not entries and not rows:
            return
        request = appstat_pb2.AppendJournalRequest(epoch=self.epoch, projections=rows, deleted=deleted)
        ends: dict[str, int] = {}
        for entry in entries:
            position = ends[entry.stream] = ends.get(entry.stream, self._ends.get(entry.stream, 0)) + 1
            request.records.add(
                stream=entry.stream, position=position, at=at, kind=entry.kind, payload=entry.payload, version=FORMAT
            )
        try:
            await self._append(request, self._delayed)
        finally:
            self.trouble = ""
        self._ends.update(ends)  # Positions of other streams may have been read during the append.

    async def confirm(self) -> None:
        """Check, without writing, that this scheduler's epoch is the newest.

        Raises:
            StaleEpoch: Another scheduler has begun a newer epoch.
        """
        await self._append(appstat_pb2.AppendJournalRequest(epoch=self.epoch))

    async def _append(
        self, request: appstat_pb2.AppendJournalRequest, delayed: Callable[[Exception], None] = lambda error: None
    ) -> None:
        try:
            await persist(lambda: self._stub.AppendJournal(request), delayed)
        except StaleEpoch as error:
            raise StaleEpoch(
                f"another scheduler has taken over this AppStat, so this one ends: {error}; an AppStat has one scheduler"
            ) from error

    def _delayed(self, error: Exception) -> None:
        self.trouble = f"the journal cannot be written: {error}"

    async def read(self, stream: StreamId) -> AsyncIterator[Event]:
        """Yield the events of a stream in order; none if the stream has no records.

        After the last event was yielded, `append` continues the stream at its end.

        Raises:
            DataLoss: A record is damaged or missing.
            RecordError: This version cannot read a record.
        """
        end = 0
        async for message in self.records(stream):
            record = stored(message)
            check_sequence(record, end)
            end = record.number
            yield event_of(record)
        self._ends[stream] = end

    async def records(self, stream: StreamId) -> AsyncIterator[appstat_pb2.JournalRecord]:
        """Yield the records of a stream in order, as AppStat returns them; none if the stream has no records.

        Raises:
            DataLoss: A record is damaged or missing.
        """
        async for response in self._stub.ReadJournal(appstat_pb2.ReadJournalRequest(stream=stream)):
            for message in response.records:
                yield message

    def forget(self, stream: StreamId) -> None:
        """Remove the end position of a stream from memory. The stream must be read again before the next append to it."""
        self._ends.pop(stream, None)


def stored(record: appstat_pb2.JournalRecord) -> StoredRecord:
    """Convert a journal record from its AppStat message to the engine's type."""
    return StoredRecord(StreamId(record.stream), record.position, record.version, record.kind, record.payload)


async def persist(call: Callable[[], Awaitable[T]], delayed: Callable[[Exception], None] = lambda error: None) -> T:
    """Call AppStat, and retry with backoff and without a time limit until the call succeeds or fails permanently.

    Only the errors of an unavailable or slow AppStat and of a full disk are retried; others are raised.

    Args:
        call: Starts one attempt. The call must be idempotent.
        delayed: Called with the error of each failed attempt.
    """

    async def attempt() -> T:
        try:
            return await call()
        except (TimedOut, Exhausted) as error:
            raise Unavailable(str(error)) from error

    def waiting(error: Exception, wait: float) -> None:
        _LOG.warning("appstat is unavailable or slow (%s), trying again in %.1f s", error, wait)
        delayed(error)

    return await retry(attempt, deadline=None, on_failure=waiting)
