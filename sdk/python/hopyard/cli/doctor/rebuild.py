"""Performs `hopyard doctor --rebuild`: shows what differs from the journal, asks, and writes the rows again."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, Final

import typer

from hopyard._common.formatting import count
from hopyard._common.plugins import DOCTOR, load_plugin
from hopyard.cli.errors import EXIT_FAILED, WrongUse
from hopyard.cli.output import emit, emit_json, say

MOST_SHOWN: Final = 20
"""Maximum number of differences that are shown of one experiment."""


def rebuild_rows(data: Path, experiments: list[str], *, dry_run: bool, yes: bool, json: bool) -> int:
    """Write the rows of experiments again from the journal, and return the exit code.

    Exit code 1: the journal of an experiment cannot be read, so its rows were not rebuilt, or the person declined.

    Args:
        data: The data directory, in which no cluster may run.
        experiments: Ids or names; empty: all.
        dry_run: Change nothing.
        yes: Do not ask.
        json: Print one JSON document instead of text.

    Raises:
        WrongUse: Nobody can be asked, and neither `dry_run` nor `yes` is given.
        HopyardError: A cluster runs in the directory, an experiment does not exist, or the database cannot be read.
    """
    if not (yes or dry_run) and (json or not sys.stdin.isatty()):
        raise WrongUse(
            "nobody can be asked here: give --yes to write the rows, or --dry-run to see what would be written"
        )

    def agree(plan: Any) -> bool:
        if not json:
            _show(plan)
        return not dry_run and (yes or typer.confirm("Write these rows again from the journal?", err=True))

    work: Any = load_plugin(DOCTOR, "rebuild")
    done = asyncio.run(work(data, experiments, agree))
    changed = [name for one in done.changed for name in one.experiments]
    if json:
        emit_json(
            {
                "dry_run": dry_run,
                "rebuilt": done.written,
                "changed": [{"experiments": one.experiments, "differences": one.differences} for one in done.changed],
                "equal": done.equal,
                "damaged": [
                    {"stream": one.stream, "experiments": one.experiments, "error": one.damage} for one in done.damaged
                ],
            }
        )
    else:
        for one in done.damaged:
            names = ", ".join(one.experiments) or one.stream
            say(f"error: {names} is not rebuilt, because its journal is damaged: {one.damage}")
        if done.written:
            emit(f"rebuilt {', '.join(changed)}")
        elif not changed:
            emit(f"the rows of {count(len(done.equal), 'stream')} are those that follow from the journal")
        else:
            say("nothing was changed")
    return EXIT_FAILED if done.damaged or (changed and not (done.written or dry_run)) else 0


def _show(plan: Any) -> None:
    """Print the differences of each experiment from the journal."""
    for one in plan.changed:
        emit(f"{', '.join(one.experiments)}: {count(len(one.differences), 'difference')}")
        for difference in one.differences[:MOST_SHOWN]:
            emit(f"  {difference}")
        if len(one.differences) > MOST_SHOWN:
            emit(f"  {len(one.differences) - MOST_SHOWN} more")
