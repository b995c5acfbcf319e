"""The journal in AppStat, as the scheduler writes and reads it."""

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
from hopyard_engine.journal.format import FORMAT, StoredRecord

if TYPE_CHECKING:
    from hopyard.v1 import appstat_pb2_grpc

_LOG = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """An encoded event on its way to a stream."""

    stream: StreamId
    kind: str
    payload: bytes


class Journal:
    """Appends with this scheduler's epoch and the expected positions, so that two schedulers can never both write.

    While AppStat is away or slow it tries again: an append is idempotent. A newer epoch or a foreign record is the end: another
    scheduler has taken over (`StaleEpoch`, `Aborted` rise).
    """

    def __init__(self, stub: appstat_pb2_grpc.AppStatServiceAsyncStub) -> None:
        self._stub = stub
        self._ends: dict[str, int] = {}
        self.epoch = 0
        self.trouble = ""
        """Why what happens cannot be written just now, so that nothing follows from it; empty: it can."""

    async def begin(self, holder: str) -> int:
        """Begins a new epoch; every older scheduler's appends are refused from now on."""
        request = appstat_pb2.BeginEpochRequest(holder=holder)
        response = await persist(lambda: self._stub.BeginEpoch(request))
        self.epoch = response.epoch
        return self.epoch

    async def append(self, entries: Sequence[JournalEntry], rows: Sequence[appstat_pb2.Projection], at: float) -> None:
        """Appends events and what follows from them, all or none, durably when it returns.

        Raises:
            StaleEpoch: Another scheduler has begun.
            Aborted: A stream is not where this scheduler left it.
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
        self._ends.update(ends)  # Other streams may have been read meanwhile.

    async def confirm(self) -> None:
        """Finds out whether this scheduler may still write, without writing anything.

        Raises:
            StaleEpoch: Another scheduler has begun.
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
        """The events of a stream in order; afterwards appends go on behind the last.

        Raises:
            RecordError: A record that this version cannot read.
        """
        end = 0
        async for response in self._stub.ReadJournal(appstat_pb2.ReadJournalRequest(stream=stream)):
            for record in response.records:
                end = record.position
                yield event_of(stored(record))
        self._ends[stream] = end

    def forget(self, stream: StreamId) -> None:
        """The stream will not be written any more until it is read again."""
        self._ends.pop(stream, None)


def stored(record: appstat_pb2.JournalRecord) -> StoredRecord:
    """A record from AppStat as the engine reads it."""
    return StoredRecord(
        StreamId(record.stream), record.position, record.version, record.kind, record.payload, record.checksum
    )


async def persist(call: Callable[[], Awaitable[T]], delayed: Callable[[Exception], None] = lambda error: None) -> T:
    """Makes an idempotent call on AppStat until it is answered, however long that takes.

    Args:
        call: Starts one try.
        delayed: Told of each failure.
    """

    async def attempt() -> T:
        try:
            return await call()
        except (TimedOut, Exhausted) as error:
            # A slow database and a full disk are waited for like an absent service.
            raise Unavailable(str(error)) from error

    def waiting(error: Exception, wait: float) -> None:
        _LOG.warning("appstat cannot do it now (%s), trying again in %.1f s", error, wait)
        delayed(error)

    return await retry(attempt, deadline=None, on_failure=waiting)
