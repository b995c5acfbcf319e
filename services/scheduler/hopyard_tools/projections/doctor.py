"""The plugins of `hopyard doctor` that compare the rows of AppStat with the journal, and write them again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from hopyard._common.formatting import count
from hopyard.cli.connect import connected
from hopyard.cli.doctor.check_result import Finding, ok, problem
from hopyard.client.async_client import AsyncClient
from hopyard.client.queries import appstat_of
from hopyard.errors import DataLoss, HopyardError
from hopyard_tools.projections.rebuild import Rebuild, rebuild_rows
from hopyard_tools.projections.stream_check import check_all

MOST_SHOWN: Final = 20
"""Maximum number of differences that are shown of one stream."""

_NAME: Final = "rows"
_ADVICE: Final = "hopyard doctor --rebuild writes the rows again from the journal, while no cluster runs"
_RESTORE: Final = "restore the data directory from a backup (hopyard restore)"


async def check(server: str | None, data: Path) -> list[Finding]:
    """Compare the rows of experiments, jobs, statistics, search plan and scaling profiles with the journal.

    The finding is OK if they are equal, else there is one for each stream with differences. Streams whose journal is damaged are left
    out: the check of the journal names them.

    Args:
        server: Address of the scheduler of a cluster; None: the cluster is that of the data directory.
        data: The data directory of the cluster on this computer, in which a cluster has run.
    """
    found: list[Finding] = []
    rows = streams = 0
    try:
        async with connected(server, data, purpose="doctor", read_only=True) as client:
            known = set[str]()
            unread = set[str]()
            async for one in check_all(await appstat_of(client)):
                known.update(one.experiments)
                if one.damage:
                    unread.add(one.stream)
                    continue
                streams, rows = streams + 1, rows + len(one.rows)
                if one.differences:
                    shown = [str(difference) for difference in one.differences[:MOST_SHOWN]]
                    if len(one.differences) > MOST_SHOWN:
                        shown.append(f"{len(one.differences) - MOST_SHOWN} further differences")
                    found.append(problem(_NAME, "\n    ".join(shown), _ADVICE, needed=True))
            found += await _without_journal(client, known, unread)
    except DataLoss as error:
        return [*found, problem(_NAME, str(error), _RESTORE, needed=True)]
    except HopyardError as error:
        return [*found, problem(_NAME, f"not compared: {error}", "repeat hopyard doctor later", needed=True)]
    if not found:
        detail = f"{count(rows, 'row')} of {count(streams, 'stream')} are those that follow from the journal"
        found.append(ok(_NAME, detail, needed=True))
    return found


async def _without_journal(client: AsyncClient, known: set[str], unread: set[str]) -> list[Finding]:
    """Return a finding for each experiment that has a row, and no journal in which it could be."""
    advice = f"{_RESTORE}, or delete the experiment with hopyard rm --force"
    return [
        problem(_NAME, f"{one.id}: found a row of an experiment without a journal", advice, needed=True)
        for one in await client.experiments()
        if one.id not in known and (one.group or one.id) not in unread and not await _changed_since(client, one.id)
    ]


async def _changed_since(client: AsyncClient, experiment: str) -> bool:
    """Return whether an experiment was deleted since the streams were listed, or has got a journal since."""
    from hopyard.v1 import appstat_pb2

    stub = await appstat_of(client)
    found = [one for one in await client.experiments() if one.id == experiment]
    if not found:
        return True
    async for response in stub.ReadJournal(appstat_pb2.ReadJournalRequest(stream=found[0].group or experiment)):
        if response.records:
            return True
    return False


async def rebuild(data: Path, names: Sequence[str], agree: Callable[[Rebuild], bool]) -> Rebuild:
    """Write the rows of experiments again from their journals, in the data directory of a cluster that does not run.

    Args:
        data: The data directory.
        names: Ids or names of experiments; empty: all experiments.
        agree: Called with what would change. Nothing is written if it returns False.

    Returns:
        What was changed, or would be.

    Raises:
        HopyardError: See `rebuild_rows`.
    """
    return await rebuild_rows(data, names, agree)
