"""Checks the database of a data directory. A plugin of the group `hopyard.doctor` does it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from hopyard._common.plugins import DOCTOR, load_plugin
from hopyard.cli.doctor.check_result import Finding, ok, problem
from hopyard.errors import HopyardError

_NAME: Final = "database"


def pages(data: Path) -> Finding:
    """Check the files, the schema and all pages of the database in a data directory, in which a cluster may run."""
    try:
        check: Any = load_plugin(DOCTOR, "database")
        return ok(_NAME, check(data), needed=True)
    except HopyardError as error:
        return problem(_NAME, str(error), "Hopyard starts when the database is restored", needed=True)
