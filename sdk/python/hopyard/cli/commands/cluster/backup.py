"""The command group `backup`, and the command `restore`: copies of a cluster's data directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hopyard.cli.options import APP_SETTINGS, Data, Json

if TYPE_CHECKING:
    from hopyard._common.backup_results import Backups, Generation

_HELP = """Save the data of a cluster while it runs.

A backup has the database (experiments, journal, results), the snapshots and code in the store, and the tokens. It has no
agents' folders: a snapshot that only a node has is not in it. Run it on the computer of the data directory, as its owner.
`hopyard restore` makes a new data directory of a backup.

**Examples:** `hopyard backup create /mnt/backups --keep 14`, `hopyard backup verify /mnt/backups`
"""

Target = Annotated[
    Path,
    typer.Argument(
        metavar="TARGET", help="Folder with the backups of one cluster.", file_okay=True, show_default=False
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command group `backup` and the command `restore` to the command line `app`."""
    group = typer.Typer(help=_HELP, no_args_is_help=True, **APP_SETTINGS)
    group.command()(create)
    group.command("list")(list_)
    group.command()(verify)
    app.add_typer(group, name="backup", rich_help_panel="Act")
    app.command(rich_help_panel="Act")(restore)


def create(
    target: Target,
    keep: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Delete all but the newest N backups in TARGET, this one included. [default: keep all]",
            show_default=False,
        ),
    ] = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Add a backup of a data directory to TARGET, while its cluster runs or not.

    The database is copied whole. Of snapshots and code, only those are copied that TARGET does not have yet. Running
    experiments are not disturbed. If the command is killed, TARGET has all earlier backups, and the next one continues.
    Exit code 1 also if the cluster itself has lost a snapshot: the backup is made without it.

    **Examples:** `hopyard backup create /mnt/backups`, `hopyard backup create /mnt/backups --data DIR --keep 14`
    """
    from hopyard._common import formatting
    from hopyard.cli.errors import EXIT_FAILED
    from hopyard.cli.output import emit, emit_json, say

    made = _backups().create(_data(data), target, keep, _note(json))
    if json:
        emit_json({"target": str(target), **_plain(made)})
    else:
        one = made.generation
        emit(
            f"backup {one.number} is in {target}: {formatting.size(one.database_bytes)} of database, "
            f"{formatting.count(one.blobs, 'blob')} ({formatting.size(one.blob_bytes)}); "
            f"copied {formatting.count(made.copied_blobs, 'blob')}, {formatting.size(made.copied_bytes)} in all"
        )
        if made.on_nodes_only:
            emit(
                f"the newest snapshot of {formatting.count(made.on_nodes_only, 'job')} is only on nodes: after a restore without them, "
                "these jobs continue from older ones"
            )
        if made.deleted:
            gone = ", ".join(map(str, made.deleted))
            emit(f"deleted backups {gone}: {formatting.size(made.freed_bytes)} freed")
    if made.lost:
        for sentence in made.lost:
            say(f"warning: {sentence}")
        say("error: the cluster has lost data that the database lists; no earlier backup was deleted")
        raise typer.Exit(EXIT_FAILED)


def list_(target: Target, json: Json = False) -> None:
    """List the backups in TARGET, oldest first.

    **Example:** `hopyard backup list /mnt/backups`
    """
    from hopyard.cli.output import emit_json

    found = _backups().generations(target)
    if json:
        emit_json({"target": str(target), "generations": list(found)})
    else:
        _show(found)


def verify(
    target: Target,
    generation: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="NUMBER",
            help="Only the backup with this number. [default: all]",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Read everything in TARGET and compare all checksums.

    It reads the manifests, the databases with each journal record, and the snapshots and code. It names each damage. Exit code 1
    if there is any. It changes nothing.

    **Examples:** `hopyard backup verify /mnt/backups`, `hopyard backup verify /mnt/backups --generation 7`
    """
    from hopyard._common import formatting
    from hopyard.cli.errors import EXIT_FAILED
    from hopyard.cli.output import emit, emit_json, say

    found = _backups().verify(target, generation, _note(json))
    if json:
        emit_json({"ok": not found.damage, "target": str(target), **_plain(found)})
    else:
        for sentence in found.damage:
            emit(f"damage: {sentence}")
        for sentence in found.notes:
            emit(f"note: {sentence}")
        read = f"{formatting.size(found.read_bytes)} and {formatting.count(found.records, 'journal record')} read"
        intact = "" if found.damage else "; all is as it was written"
        emit(f"{formatting.count(len(found.generations), 'backup')}, {read}{intact}")
    if found.damage:
        say(f"error: {len(found.damage)} damaged or missing")
        raise typer.Exit(EXIT_FAILED)


def restore(
    target: Target,
    generation: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="NUMBER",
            help="The backup with this number (`hopyard backup list`). [default: the newest]",
            show_default=False,
        ),
    ] = None,
    as_copy: Annotated[
        bool,
        typer.Option(
            "--copy",
            help="Make a second cluster beside the first, with another id and other tokens, which its agents do not join.",
        ),
    ] = False,
    new_tokens: Annotated[
        bool, typer.Option("--new-tokens", help="Do not restore the tokens: the next start creates new ones.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Leave out snapshots and code that are missing or damaged in the backup."),
    ] = False,
    data: Data = None,
    json: Json = False,
) -> None:
    """Make a new data directory of a backup.

    TARGET is the folder of backups. Start the restored cluster with `hopyard up` or `hopyard resume`.

    DIR must be missing or empty: stop the old cluster and move its directory away first. All is verified while it is copied, and
    DIR appears when it is complete. Agents that ran on since the backup connect to the restored cluster again: their runs since
    then are discarded, with a message, and jobs continue from the state of the backup.

    **Examples:** `hopyard restore /mnt/backups`, `hopyard restore /mnt/backups --generation 7 --data test --copy`
    """
    from shlex import quote

    from hopyard._common import formatting
    from hopyard.cli.output import emit, emit_json, say

    folder = _data(data)
    made = _backups().restore(
        target,
        folder,
        number=generation,
        as_copy=as_copy,
        new_tokens=new_tokens,
        force=force,
        note=_note(json),
    )
    for sentence in made.missing:
        say(f"warning: {sentence}")
    if json:
        emit_json({"target": str(target), **_plain(made)})
        return
    when = formatting.moment(made.generation.taken_at, "%Y-%m-%d %H:%M:%S")
    option = "" if data is None else f" --data {quote(str(data))}"
    emit(f"backup {made.generation.number} of {when} is restored in {made.data}")
    emit(
        f"`hopyard experiments{option}` shows what it has; `hopyard up{option}` or `hopyard resume{option}` continues it"
    )


def _show(found: Sequence[Generation]) -> None:
    from rich.table import Table

    from hopyard._common import formatting
    from hopyard.cli.output import emit

    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("backup", "taken", "database", "blobs", "size of blobs"):
        table.add_column(column, justify="left" if column == "taken" else "right")
    for one in found:
        when = formatting.moment(one.taken_at, "%Y-%m-%d %H:%M:%S")
        sizes = (formatting.size(one.database_bytes), str(one.blobs), formatting.size(one.blob_bytes))
        table.add_row(str(one.number), when, *sizes)
    emit(table)


def _backups() -> Backups:
    from hopyard._common.plugins import BACKUPS, load_plugin

    make: Any = load_plugin(BACKUPS, "appstat")
    service: Backups = make()
    return service


def _data(data: Path | None) -> Path:
    from hopyard.client.address import DEFAULT_DATA

    return data if data is not None else DEFAULT_DATA


def _note(json: bool) -> Any:
    from hopyard.cli.output import say

    return (lambda text: None) if json else say


def _plain(result: Any) -> dict[str, Any]:
    """Return the fields of a result as the values of a JSON document."""
    from dataclasses import asdict

    return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(result).items()}
