"""The scheduler's access to the journal in AppStat."""

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
    """An encoded event to append to a stream."""

    stream: StreamId
    kind: str
    payload: bytes


class Journal:
    """Reads and appends the streams of the journal.

    Each append carries this scheduler's epoch and the expected positions, so that two schedulers never both write.
    Appends are idempotent and retried while AppStat is unavailable or slow. They raise `StaleEpoch` after another
    scheduler began a newer epoch, and `Aborted` if a stream has records of another writer.
    """

    def __init__(self, stub: appstat_pb2_grpc.AppStatServiceAsyncStub) -> None:
        self._stub = stub
        self._ends: dict[str, int] = {}
        self.epoch = 0
        self.trouble = ""
        """Why the journal cannot be written at present; empty: it can be written. No effect is carried out meanwhile.
        """

    async def begin(self, holder: str) -> int:
        """Begins a new epoch and returns it. Appends of earlier epochs are refused from then on.

        Args:
            holder: A name of this scheduler for people, such as HOST:PID.
        """
        request = appstat_pb2.BeginEpochRequest(holder=holder)
        response = await persist(lambda: self._stub.BeginEpoch(request))
        self.epoch = response.epoch
        return self.epoch

    async def append(self, entries: Sequence[JournalEntry], rows: Sequence[appstat_pb2.Projection], at: float) -> None:
        """Appends records and rows in one transaction; they are durable when it returns.

        Raises:
            StaleEpoch: Another scheduler has begun a newer epoch.
            Aborted: A stream does not end at the expected position.
        """
        if not entries and not rows:
            return
        request = appstat_pb2.AppendJournalRequest(epoch=self.epoch, projections=rows)
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
        """Checks that this scheduler's epoch is the newest, without writing.

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
        """Yields the events of a stream in order. Later appends continue after its last record.

        Raises:
            RecordError: A record is missing, or cannot be read by this version.
        """
        end = 0
        async for response in self._stub.ReadJournal(appstat_pb2.ReadJournalRequest(stream=stream)):
            for message in response.records:
                record = stored(message)
                check_sequence(record, end)
                end = record.number
                yield event_of(record)
        self._ends[stream] = end

    def forget(self, stream: StreamId) -> None:
        """Drops the position of a stream. It must be read again before the next append."""
        self._ends.pop(stream, None)


def stored(record: appstat_pb2.JournalRecord) -> StoredRecord:
    """Converts a record of AppStat to a record of the engine."""
    return StoredRecord(
        StreamId(record.stream), record.position, record.version, record.kind, record.payload, record.checksum
    )


async def persist(call: Callable[[], Awaitable[T]], delayed: Callable[[Exception], None] = lambda error: None) -> T:
    """Retries an idempotent call to AppStat without a time limit, with backoff.

    Only an unavailable or slow AppStat and a full disk are retried; other errors are raised.

    Args:
        call: Starts one attempt.
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
