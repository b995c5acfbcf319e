"""Reads the whole journal of a cluster, which finds damaged, missing, doubled and moved records."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopyard._common import formatting
from hopyard.cli.connect import connected
from hopyard.cli.doctor.check_result import Finding, ok, problem
from hopyard.client.queries import appstat_of
from hopyard.errors import DataLoss, HopyardError
from hopyard.v1 import appstat_pb2

if TYPE_CHECKING:
    from hopyard.v1.appstat_pb2_grpc import AppStatServiceAsyncStub

MOST_SHOWN: Final = 20
"""Maximum number of findings about damaged streams."""

_NAME: Final = "journal"
_ADVICE: Final = (
    "its experiment is paused at the next start until the database is mended, or deleted with hopyard rm --force"
)
_CLUSTER_ADVICE: Final = "the scheduler does not start until the database is restored from a backup"
_CLUSTER: Final = "cluster"
"""Name of the stream of the cluster itself."""


async def journal(server: str | None, data: Path) -> list[Finding]:
    """Read all records of the journal. The finding is OK if they are as they were written, else there is one for each damaged stream.

    Args:
        server: Address of the scheduler of a cluster; None: the cluster is that of the data directory.
        data: The data directory of the cluster on this computer, in which a cluster has run.
    """
    found: list[Finding] = []
    streams = records = damaged = 0
    try:
        async with connected(server, data, purpose="doctor", read_only=True) as client:
            stub = await appstat_of(client)
            async for stream, length in _streams(stub):
                streams, records = streams + 1, records + length
                damage = await _damage(stub, stream)
                damaged += bool(damage)
                if damage and len(found) < MOST_SHOWN:
                    advice = _CLUSTER_ADVICE if stream == _CLUSTER else _ADVICE
                    found.append(problem(_NAME, damage, advice, needed=True))
    except DataLoss as error:
        return [*found, problem(_NAME, str(error), "mend the database, or restore it from a backup", needed=True)]
    except HopyardError as error:
        return [
            *found,
            problem(_NAME, f"not read: {error}", "repeat hopyard doctor when the cluster answers", needed=True),
        ]
    if damaged > len(found):
        found.append(problem(_NAME, f"{damaged - len(found)} further damaged streams", _ADVICE, needed=True))
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
    """Return the damage at which the read of a stream ends; empty: it is intact."""
    try:
        async for _ in stub.ReadJournal(appstat_pb2.ReadJournalRequest(stream=stream)):
            pass
    except DataLoss as error:
        return str(error)
    return ""
