"""Where the commands read an experiment's journal: from the AppStat of the cluster that --server or --data names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopyard._net.rpc import channel, retry
from hopyard.cli.connect import connected, find
from hopyard.client.async_client import AsyncClient
from hopyard.client.types import Experiment
from hopyard.v1 import appstat_pb2, appstat_pb2_grpc
from hopyard_engine.core.events import Event
from hopyard_engine.journal.codec import decode

if TYPE_CHECKING:
    from hopyard.v1.appstat_pb2_grpc import AppStatServiceAsyncStub

POLL_SECONDS: Final = 0.5
"""How often a follower looks for new events."""

PATIENCE_SECONDS: Final = 30.0
"""How long a follower bears an AppStat that is away."""


@dataclass(frozen=True)
class JournalSource:
    """An experiment and where its journal is read."""

    client: AsyncClient
    experiment: Experiment
    stub: AppStatServiceAsyncStub

    @property
    def stream_name(self) -> str:
        """The stream that the experiment's events are in: its group's."""
        return self.experiment.group or self.experiment.id

    async def length(self) -> int:
        """Events that its stream has now."""
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
        """The events from number `first` to the stream's present end, each with its number."""
        request = appstat_pb2.ReadJournalRequest(stream=self.stream_name, from_position=first)
        async for response in self.stub.ReadJournal(request):
            for record in response.records:
                yield record.position, decode(record.kind, record.payload)

    async def follow(self, over: Callable[[], bool]) -> AsyncGenerator[tuple[int, Event]]:
        """The events from the first on, as they come, until `over` says so when all were given.

        Raises:
            Unavailable: AppStat was away for too long; a restart is waited for.
        """
        first = 1
        while True:
            for number, event in await retry(lambda: self._part(first), deadline=PATIENCE_SECONDS):  # noqa: B023 - awaited here
                yield number, event
                first = number + 1
            if over():
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _part(self, first: int) -> list[tuple[int, Event]]:
        return [item async for item in self.read(first)]


@asynccontextmanager
async def opened(
    server: str | None, data: Path | None, experiment: str | None, purpose: str
) -> AsyncIterator[JournalSource]:
    """The journal of an experiment, named by id or name; without either, of the newest.

    Raises:
        NotFound: There is no such experiment, or no cluster.
    """
    async with (
        connected(server, data, purpose=purpose) as client,
        reading(client, await find(client, experiment)) as source,
    ):
        yield source


@asynccontextmanager
async def reading(client: AsyncClient, experiment: Experiment) -> AsyncIterator[JournalSource]:
    """The journal of an experiment of a client's cluster."""
    cluster = await client.cluster()
    async with channel(cluster.appstat_address) as link:
        yield JournalSource(client, experiment, appstat_pb2_grpc.AppStatServiceStub(link))
