"""Checks the database of a data directory, and compares its rows with the journal. Plugins of the group `hopyard.doctor` do it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from hopyard._common.plugins import DOCTOR, load_plugin
from hopyard.cli.doctor.check_result import Finding, ok, problem
from hopyard.client.local_cluster.embedded import check_database
from hopyard.errors import HopyardError

_NAME: Final = "database"
_ADVICE: Final = "no cluster starts in this directory until the database is restored"


def files(data: Path) -> Finding:
    """Check the headers of the files of the database in a data directory, as each command does that reads it. It takes milliseconds."""
    try:
        check_database(data)
    except HopyardError as error:
        return problem(_NAME, str(error), _ADVICE, needed=True)
    return ok(_NAME, "the headers of its files are intact; all pages are read without --quick", needed=True)


def pages(data: Path) -> Finding:
    """Check the files, the schema and all pages of the database in a data directory, in which a cluster may run."""
    try:
        check: Any = load_plugin(DOCTOR, "database")
        return ok(_NAME, check(data), needed=True)
    except HopyardError as error:
        return problem(_NAME, str(error), _ADVICE, needed=True)


async def rows(server: str | None, data: Path) -> list[Finding]:
    """Compare the rows of experiments, jobs and reports with the journal. There is a finding for each stream with differences.

    Args:
        server: Address of the scheduler of a cluster; None: the cluster is that of the data directory.
        data: The data directory of the cluster on this computer, in which a cluster has run.
    """
    check: Any = load_plugin(DOCTOR, "projections")
    found: list[Finding] = await check(server, data)
    return found
