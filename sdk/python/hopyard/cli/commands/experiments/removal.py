"""The command `rm`: deletes experiments."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hopyard.cli.completion import complete_experiment
from hopyard.cli.options import Data, Json, Server

if TYPE_CHECKING:
    from hopyard.client.async_client import AsyncClient
    from hopyard.client.types import ExperimentStorage


def register(app: typer.Typer) -> None:
    """Add the command `rm` to the command line `app`."""
    app.command(rich_help_panel="Act")(rm)


def rm(
    experiments: Annotated[
        list[str],
        typer.Argument(metavar="EXPERIMENT...", help="Ids or names.", autocompletion=complete_experiment),
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Also delete paused experiments, with their unfinished jobs.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; show what would be deleted.")] = False,
    server: Server = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Delete experiments, with everything that only they use.

    The experiments must have ended. Their jobs, reports, journal, snapshots, code and logs are deleted and cannot be
    restored; `hopyard export` saves an experiment first. Snapshots that other experiments use, too, stay for them. Later
    searches cannot reuse the deleted training. Experiments of a group (`share`) are deleted together: name all of them.
    The command shows what it would delete and asks. A name that several experiments have is refused: give their ids.

    **Examples:** `hopyard rm digits --dry-run`, `hopyard rm digits-3f9a12 digits-77b0c4 --yes`
    """
    import asyncio

    from hopyard.cli.commands.cluster.garbage import delete_idle_snapshots
    from hopyard.cli.connect import find, stopped_data_dir, with_client
    from hopyard.cli.errors import WrongUse
    from hopyard.cli.output import emit, emit_json, say

    if not (yes or dry_run) and (json or not sys.stdin.isatty()):
        raise WrongUse("nobody can be asked here: give --yes to delete, or --dry-run to see what would be deleted")

    async def act(client: AsyncClient) -> tuple[list[ExperimentStorage], bool]:
        names = list(dict.fromkeys([(await find(client, name, only=True)).id for name in experiments]))
        snapshots = {snapshot.sha256 for name in names for job in await client.jobs(name) for snapshot in job.snapshots}
        plan = await client.delete(names, force=force, dry_run=True)
        if dry_run:
            return plan, False
        if not yes:
            _show(plan)
            if not typer.confirm("Delete this?", err=True):
                return plan, False
        deleted = await client.delete(names, force=force)
        if idle is not None:
            # The agents of a stopped cluster would delete these only when they start again.
            await delete_idle_snapshots(client, idle, snapshots)
        return deleted, True

    idle = asyncio.run(stopped_data_dir(server, data))
    found, deleted = with_client(server, data, "hopyard rm", act)
    if json:
        size = sum(one.size_bytes for one in found)
        emit_json({"dry_run": dry_run, "deleted": deleted, "experiments": found, "bytes": size})
    elif deleted:
        if yes:
            _show(found)
        emit(f"deleted {' and '.join(name for one in found for name in one.experiments)}")
    elif dry_run:
        _show(found)
        emit("nothing was changed")
    else:
        say("nothing was changed")
    if not json and (absent := sorted({node for one in found for node in one.absent_nodes})):
        say(f"logs on {', '.join(absent)} are not counted; they are deleted when the node connects")


def _show(plan: Sequence[ExperimentStorage]) -> None:
    """Print what belongs to experiments: numbers and bytes."""
    from rich.table import Table

    from hopyard._common import formatting
    from hopyard.cli.output import emit

    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("experiment", "jobs", "reports", "journal", "snapshots", "code", "logs", "size"):
        table.add_column(column, justify="left" if column == "experiment" else "right")
    for one in plan:
        table.add_row(
            ", ".join(one.experiments),
            str(one.jobs),
            str(one.reports),
            formatting.size(one.journal_bytes),
            f"{one.snapshots} ({formatting.size(one.snapshot_bytes)})",
            formatting.size(one.bundle_bytes),
            f"{one.logs} ({formatting.size(one.log_bytes)})",
            formatting.size(one.size_bytes),
        )
    emit(table)
    for one in plan:
        if one.shared_snapshots:
            size = formatting.size(one.shared_bytes)
            kept = formatting.count(one.shared_snapshots, "snapshot")
            emit(f"{kept} ({size}) of {', '.join(one.experiments)} stay for {', '.join(one.shared_with)}")
