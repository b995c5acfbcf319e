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

A backup contains the database (experiments, journal, results), the snapshots and code in the store, and the tokens. It does not
contain the folders of agents, and so no snapshot that only a node has. Run it on the computer of the data directory, as its
owner. `hopyard restore` makes a new data directory from a backup.

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
    """Add a backup of a data directory to TARGET. Its cluster may run.

    The whole database is copied, and the snapshots and code that TARGET does not contain yet. Running experiments continue.
    If the command is killed, or the disk is full, all earlier backups remain usable, and the next command uses what was copied.
    If the cluster has lost a snapshot or cannot read it, the backup is made without it. If the journal of an experiment is damaged,
    the backup contains the damage. In both cases, no older backup is deleted, and the exit code is 1.

    **Examples:** `hopyard backup create /mnt/backups`, `hopyard backup create /mnt/backups --data DIR --keep 14`
    """
    from hopyard._common import formatting
    from hopyard.cli.errors import EXIT_FAILED
    from hopyard.cli.output import emit, emit_json, plain, say

    made = _backups().create(_data(data), target, keep, _note(json))
    if json:
        emit_json({"target": str(target), **plain(made)})
    else:
        one = made.generation
        emit(
            f"backup {one.number} is in {target}: {formatting.size(one.database_bytes)} of database, "
            f"{formatting.count(one.blobs, 'blob')} ({formatting.size(one.blob_bytes)}); "
            f"copied {formatting.count(made.copied_blobs, 'blob')}, {formatting.size(made.copied_bytes)} in all"
        )
        for path in made.replaced:
            emit(f"replaced the damaged file {path} by an undamaged copy")
        if made.on_nodes_only:
            emit(
                f"the newest snapshot of {formatting.count(made.on_nodes_only, 'job')} is only on nodes: if these nodes are lost, too, "
                "the jobs continue from older snapshots after a restore"
            )
        if made.deleted:
            gone = ", ".join(map(str, made.deleted))
            emit(f"deleted backups {gone}: {formatting.size(made.freed_bytes)} freed")
    if made.lost or made.damaged:
        for sentence in (*made.lost, *made.damaged):
            say(f"warning: {sentence}")
        lacks = ["lacks snapshots or code that the database lists"] if made.lost else []
        if made.damaged:
            lacks.append(f"contains {formatting.count(len(made.damaged), 'damaged journal')}")
        say(f"error: the backup {' and '.join(lacks)}; no earlier backup was deleted")
        raise typer.Exit(EXIT_FAILED)


def list_(target: Target, json: Json = False) -> None:
    """List the backups in TARGET, oldest first. Exit code 1 if the description of one is missing or damaged.

    **Example:** `hopyard backup list /mnt/backups`
    """
    from hopyard.cli.errors import EXIT_FAILED
    from hopyard.cli.output import emit_json, plain, say

    found = _backups().generations(target)
    if json:
        emit_json({"target": str(target), **plain(found)})
    else:
        _show(found.generations)
    if found.damage:
        for sentence in found.damage:
            say(f"damage: {sentence}")
        say("error: not all backups can be listed")
        raise typer.Exit(EXIT_FAILED)


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
    """Read everything in TARGET, compare all checksums, and name each damage.

    It reads the manifests, all pages and journal records of the databases, and all snapshots and code. The exit code is 1 if
    something is damaged or missing. It changes nothing.

    **Examples:** `hopyard backup verify /mnt/backups`, `hopyard backup verify /mnt/backups --generation 7`
    """
    from hopyard._common import formatting
    from hopyard.cli.errors import EXIT_FAILED
    from hopyard.cli.output import emit, emit_json, plain, say

    found = _backups().verify(target, generation, _note(json))
    if json:
        emit_json({"ok": not found.damage, "target": str(target), **plain(found)})
    else:
        for sentence in found.damage:
            emit(f"damage: {sentence}")
        for sentence in found.notes:
            emit(f"note: {sentence}")
        read = f"{formatting.size(found.read_bytes)} and {formatting.count(found.records, 'journal record')} read"
        intact = "" if found.damage else "; no damage found"
        emit(f"{formatting.count(len(found.generations), 'backup')}, {read}{intact}")
    if found.damage:
        say(f"error: damage was found in {formatting.count(len(found.damage), 'place')}")
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
            help="Make a second cluster, with another id and other tokens. The agents of the first cluster cannot join it.",
        ),
    ] = False,
    new_tokens: Annotated[
        bool, typer.Option("--new-tokens", help="Do not restore the tokens: the next start creates new ones.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Leave out snapshots and code that are missing, damaged or unreadable in the backup."
        ),
    ] = False,
    data: Data = None,
    json: Json = False,
) -> None:
    """Make a new data directory from a backup.

    TARGET is the folder of backups. Start the restored cluster with `hopyard up` or `hopyard resume`.

    DIR must be missing or empty: stop the old cluster, and move its directory away first. All bytes are verified while they are
    copied, and DIR appears when it is complete. Agents that still run connect to the restored cluster. Their runs that the
    backup does not know are discarded, with a message, and the jobs continue from the state of the backup.

    **Examples:** `hopyard restore /mnt/backups`, `hopyard restore /mnt/backups --generation 7 --data test --copy`
    """
    from shlex import quote

    from hopyard._common import formatting
    from hopyard.cli.output import emit, emit_json, plain, say

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
    for sentence in (*made.missing, *made.damaged):
        say(f"warning: {sentence}")
    if json:
        emit_json({"target": str(target), **plain(made)})
        return
    when = formatting.moment(made.generation.taken_at, "%Y-%m-%d %H:%M:%S")
    option = "" if data is None else f" --data {quote(str(data))}"
    emit(f"backup {made.generation.number} of {when} is restored in {made.data}")
    emit(
        f"`hopyard experiments{option}` lists its experiments; `hopyard up{option}` or `hopyard resume{option}` continues them"
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
