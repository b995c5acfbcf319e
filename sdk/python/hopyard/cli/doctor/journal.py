"""Reads the whole journal of a cluster, which finds damaged, missing, doubled and moved records."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopyard._common import formatting
from hopyard.cli.connect import connected
from hopyard.cli.doctor.check_result import Finding, ok, problem
from hopyard.client.queries import appstat_of
from hopyard.errors import HopyardError
from hopyard.v1 import appstat_pb2

if TYPE_CHECKING:
    from hopyard.v1.appstat_pb2_grpc import AppStatServiceAsyncStub

MOST_SHOWN: Final = 20
"""Maximum number of findings about damaged streams."""

_NAME: Final = "journal"
_ADVICE: Final = (
    "its experiment is paused at the next start until the database is mended, or deleted with hopyard rm --force"
)


async def journal(server: str | None, data: Path) -> list[Finding]:
    """Read all records of the journal. The finding is OK if they are as they were written, else there is one for each damaged stream.

    Args:
        server: Address of the scheduler of a cluster; None: the cluster is that of the data directory.
        data: The data directory of the cluster on this computer, in which a cluster has run.
    """
    found: list[Finding] = []
    streams = records = 0
    try:
        async with connected(server, data, purpose="doctor", read_only=True) as client:
            stub = await appstat_of(client)
            async for stream, length in _streams(stub):
                streams, records = streams + 1, records + length
                damage = await _damage(stub, stream)
                if damage and len(found) < MOST_SHOWN:
                    found.append(problem(_NAME, damage, _ADVICE, needed=True))
    except HopyardError as error:
        return [*found, problem(_NAME, str(error), "mend the database, or restore it from a backup", needed=True)]
    if not found:
        detail = f"{formatting.count(records, 'record')} in {formatting.count(streams, 'stream')}, all intact"
        found.append(ok(_NAME, detail, needed=True))
    return found


async def _streams(stub: AppStatServiceAsyncStub) -> AsyncIterator[tuple[str, int]]:
    """Yield the names of all streams, with the number of their records."""
    token = ""
    while True:
        page = await stub.ListStreams(appstat_pb2.ListStreamsRequest(page_token=token))
        for stream in page.streams:
            yield stream.stream, stream.length
        token = page.next_page_token
        if not token:
            return


async def _damage(stub: AppStatServiceAsyncStub, stream: str) -> str:
    """Return the error with which the read of a stream ends; empty: it is intact."""
    try:
        async for _ in stub.ReadJournal(appstat_pb2.ReadJournalRequest(stream=stream)):
            pass
    except HopyardError as error:
        return str(error)
    return ""
