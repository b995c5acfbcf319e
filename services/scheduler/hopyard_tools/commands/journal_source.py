"""Reads an experiment's journal from AppStat of the cluster that the options --server and --data select."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopyard._net.rpc import retry
from hopyard.cli.connect import connected, find
from hopyard.client.async_client import AsyncClient
from hopyard.client.queries import appstat_of
from hopyard.client.types import Experiment
from hopyard.v1 import appstat_pb2
from hopyard_engine.core.events import Event
from hopyard_engine.journal.codec import event_of
from hopyard_engine.journal.format import check_sequence
from hopyard_scheduler.runtime.journal import stored

if TYPE_CHECKING:
    from hopyard.v1.appstat_pb2_grpc import AppStatServiceAsyncStub

POLL_SECONDS: Final = 0.5
"""Interval in seconds at which new events are requested."""

PATIENCE_SECONDS: Final = 30.0
"""Maximum seconds for which AppStat may be unavailable while events are followed."""


@dataclass(frozen=True)
class JournalSource:
    """An experiment and the connection to its journal.

    Attributes:
        client: A client of the cluster.
        experiment: The experiment.
        stub: Client of AppStat, which has the journal.
    """

    client: AsyncClient
    experiment: Experiment
    stub: AppStatServiceAsyncStub

    @property
    def stream_name(self) -> str:
        """The id of the stream with the experiment's events: that of its group if it has one, else the experiment's own."""
        return self.experiment.group or self.experiment.id

    async def length(self) -> int:
        """Return the present number of events in the experiment's stream; 0 if AppStat has no such stream."""
        token = ""
        while True:
            page = await self.stub.ListStreams(appstat_pb2.ListStreamsRequest(page_token=token))
            for info in page.streams:
                if info.stream == self.stream_name:
                    return info.length
            token = page.next_page_token
            if not token:
                return 0

    async def read(self, first: int = 1) -> AsyncGenerator[tuple[int, Event]]:
        """Yield the events of the stream from number `first` to its present end, each with its number. Numbers start at 1.

        Raises:
            RecordError: This version cannot read a record.
        """
        request = appstat_pb2.ReadJournalRequest(stream=self.stream_name, from_position=first)
        previous = first - 1
        async for response in self.stub.ReadJournal(request):
            for message in response.records:
                record = stored(message)
                check_sequence(record, previous)
                previous = record.number
                yield record.number, event_of(record)

    async def follow(self, over: Callable[[], bool]) -> AsyncGenerator[tuple[int, Event]]:
        """Yield all events of the stream, each with its number, and wait for new events when all were yielded.

        Args:
            over: Called whenever all present events were yielded; returns True to end the iteration. It also ends if no
                cluster runs.

        Raises:
            RecordError: This version cannot read a record.
            Unavailable: AppStat was unavailable for longer than `PATIENCE_SECONDS`.
        """
        first = 1
        while True:
            for number, event in await retry(lambda: self._part(first), deadline=PATIENCE_SECONDS):  # noqa: B023 - awaited here
                yield number, event
                first = number + 1
            if over() or not self.client.live:
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _part(self, first: int) -> list[tuple[int, Event]]:
        return [item async for item in self.read(first)]


@asynccontextmanager
async def opened(
    server: str | None, data: Path | None, experiment: str | None, purpose: str
) -> AsyncIterator[JournalSource]:
    """Open the journal of an experiment while the context is open.

    Args:
        server: Address of a running cluster's scheduler; None: the cluster is found by `data`.
        data: Data folder of a cluster; None: the default folder.
        experiment: The experiment's id or name; None: the newest experiment.
        purpose: The command that uses the journal, for messages.

    Raises:
        NotFound: The experiment or the cluster does not exist.
    """
    async with (
        connected(server, data, purpose=purpose, read_only=True) as client,
        reading(client, await find(client, experiment)) as source,
    ):
        yield source


@asynccontextmanager
async def reading(client: AsyncClient, experiment: Experiment) -> AsyncIterator[JournalSource]:
    """Open the journal of an experiment in a client's cluster while the context is open."""
    yield JournalSource(client, experiment, await appstat_of(client))
