"""The journal in AppStat, as the scheduler writes and reads it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from hopyard.rpc import retry
from hopyard.v1 import appstat_pb2
from hopyard_scheduler.codec import decode, encode, kind_of
from hopyard_scheduler.core.effects import Record
from hopyard_scheduler.core.events import Event

if TYPE_CHECKING:
    from hopyard.v1 import appstat_pb2_grpc

_LOG = logging.getLogger(__name__)


class Journal:
    """Appends with this scheduler's epoch and the expected positions, so that two schedulers can never both write.

    While AppStat is away it waits and tries again: an append is idempotent. A newer epoch or a foreign record is the end:
    another scheduler has taken over (`StaleEpoch`, `Aborted` rise).
    """

    def __init__(self, stub: appstat_pb2_grpc.AppStatServiceAsyncStub) -> None:
        self._stub = stub
        self._ends: dict[str, int] = {}
        self.epoch = 0

    async def begin(self, holder: str) -> int:
        """Begins a new epoch; every older scheduler's appends are refused from now on."""
        request = appstat_pb2.BeginEpochRequest(holder=holder)
        response = await retry(lambda: self._stub.BeginEpoch(request), deadline=None, on_failure=_waiting)
        self.epoch = response.epoch
        return self.epoch

    async def append(self, records: Sequence[Record], projections: Sequence[appstat_pb2.Projection], at: float) -> None:
        """Appends events and what follows from them, all or none, durably when it returns.

        Raises:
            StaleEpoch: Another scheduler has begun.
            Aborted: A stream is not where this scheduler left it.
        """
        if not records and not projections:
            return
        request = appstat_pb2.AppendJournalRequest(epoch=self.epoch, projections=projections)
        ends = dict(self._ends)
        for record in records:
            position = ends[record.stream] = ends.get(record.stream, 0) + 1
            request.records.add(
                stream=record.stream,
                position=position,
                at=at,
                kind=kind_of(record.event),
                payload=encode(record.event),
            )
        await retry(lambda: self._stub.AppendJournal(request), deadline=None, on_failure=_waiting)
        self._ends = ends

    async def read(self, stream: str) -> AsyncIterator[Event]:
        """The events of a stream in order; afterwards appends go on behind the last."""
        self._ends[stream] = 0
        async for response in self._stub.ReadJournal(appstat_pb2.ReadJournalRequest(stream=stream)):
            for record in response.records:
                self._ends[stream] = record.position
                yield decode(record.kind, record.payload)

    async def find_end(self, stream: str) -> None:
        """Learns where a stream ends without reading it."""
        token = ""
        while True:
            page = await self._stub.ListStreams(appstat_pb2.ListStreamsRequest(page_token=token))
            for info in page.streams:
                if info.stream == stream:
                    self._ends[stream] = info.length
            token = page.next_page_token
            if not token:
                return

    def forget(self, stream: str) -> None:
        """The stream will not be written any more until it is read again."""
        self._ends.pop(stream, None)


def _waiting(error: Exception, wait: float) -> None:
    _LOG.warning("appstat is away (%s), trying again in %.1f s", error, wait)
