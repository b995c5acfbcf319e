"""The command `gc`: deletes data that no experiment needs from the store and from nodes."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hopyard.cli.options import Data, Json, Server

if TYPE_CHECKING:
    from hopyard.client.async_client import AsyncClient
    from hopyard.client.types import ExperimentStorage, Garbage, GarbageKind, KeptForOthers, StoreUse

_COPIES: Final = "snapshots that no experiment holds"
_PARTIALS: Final = "unfinished uploads and files"
_HASH_DIGITS: Final = 64
_MOST_SHOWN: Final = 10


def register(app: typer.Typer) -> None:
    """Add the command `gc` to the command line `app`."""
    app.command(rich_help_panel="Act")(gc)


def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; report what would be deleted.")] = False,
    older_than: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Keep everything that was written or requested within this time: it may be in use."
        ),
    ] = "10m",
    foreign: Annotated[
        bool,
        typer.Option(
            "--foreign",
            help="Also delete blobs in a store given by URL that are not in the index. Only if no other cluster uses the store.",
        ),
    ] = False,
    for_later: Annotated[
        bool,
        typer.Option(
            "--for-later", help="Also delete the snapshots that finished experiments keep only for later ones."
        ),
    ] = False,
    server: Server = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Delete what nobody needs from the store and the nodes.

    It deletes unused blobs and code, unfinished uploads, and leftover snapshots on nodes. Everything that an
    experiment, a fork or a resume needs is kept, so it may run at any time. It also reports the snapshots that are kept
    only for later searches, with the training needed to recreate them; which experiments use the most space (`hopyard
    rm` deletes them; --json lists all); and the usage of the store, its quota (`hopyard up --store-quota`), and what
    would be evicted next.

    **Examples:** `hopyard gc --dry-run`, `hopyard gc --older-than 1d --json`
    """
    import asyncio

    from hopyard.cli.output import emit_json
    from hopyard.spec.units import option_seconds

    age = option_seconds("--older-than", older_than, zero=True)
    got = asyncio.run(_collect(server, data, dry_run, age, foreign, for_later))
    if json:
        emit_json(
            {
                "dry_run": got.dry_run,
                "found": got.found,
                "notes": got.notes,
                "bytes": _bytes(got.found),
                "kept": got.kept,
                "kept_bytes": _bytes(got.kept),
                "seconds_again": sum(one.seconds_again for one in got.kept),
                "given_up_seconds": sum(one.seconds_again for one in got.kept if one.given_up),
                "store": got.store,
                "experiments": [{**asdict(one), "size_bytes": one.size_bytes} for one in got.experiments],
            }
        )
    else:
        _show(got)


async def _collect(
    server: str | None, data: Path | None, dry_run: bool, age: float, foreign: bool, for_later: bool
) -> Garbage:
    from hopyard.cli.connect import connected, stopped_data_dir

    idle = await stopped_data_dir(server, data)
    # No agents run for a stopped cluster, so this command reads their folders.
    files = _idle_files(idle, age) if idle is not None else []

    async with connected(server, data, purpose="hopyard gc") as client:
        got = await _ask(client, files, dry_run, age, foreign, for_later)
        unneeded = set(got.unneeded)
        chosen = [(place, path) for place, path in files if not _is_hash(path.name) or path.name in unneeded]
        return replace(got, found=(*got.found, *_deleted(chosen, dry_run)))


async def delete_idle_snapshots(client: AsyncClient, data: Path, hashes: Collection[str]) -> int:
    """Delete snapshots that nobody needs from the folders of a stopped cluster's node agents, and return how many bytes they had.

    Args:
        client: A client of the cluster, which has no agents now.
        data: The data directory of the cluster.
        hashes: The SHA-256 of the snapshots to delete. Those that an experiment needs stay.
    """
    files = [(place, path) for place, path in _idle_files(data, 0.0) if path.name in hashes]
    if not files:
        return 0
    # A dry run changes nothing, and says which of the files nobody needs.
    unneeded = set((await _ask(client, files, True, 0.0, False, False)).unneeded)
    return _bytes(_deleted([(place, path) for place, path in files if path.name in unneeded], False))


async def _ask(
    client: AsyncClient, files: Sequence[tuple[str, Path]], dry_run: bool, age: float, foreign: bool, for_later: bool
) -> Garbage:
    hashes = sorted({path.name for _, path in files if _is_hash(path.name)})
    return await client.collect_garbage(
        dry_run=dry_run, older_than=age, foreign=foreign, idle=hashes, for_others=for_later
    )


def _idle_files(data: Path, age: float) -> list[tuple[str, Path]]:
    """Return the old files in the snapshot folders of a stopped cluster's node agents, whether an experiment needs them or not.

    Snapshots of another cluster, which somebody has copied there, are omitted.

    Args:
        data: The data directory of the cluster.
        age: Minimum age of the files in seconds, inclusive.

    Returns:
        Pairs of the agent's folder name and a file: snapshots, named by their SHA-256, and unfinished files, whose names begin
        with a dot.
    """
    from hopyard._runtime.snapshot_record import snapshots_elsewhere

    before = time.time() - age
    found = []
    for folder in sorted(data.glob("agent*/snapshots")):
        elsewhere = snapshots_elsewhere(folder.parent)
        for path in sorted(folder.iterdir()):
            ours = _is_hash(path.name) or path.name.startswith(".")  # as in the agent's garbage collection
            with suppress(FileNotFoundError):
                if ours and path.stat().st_mtime <= before and path.name not in elsewhere:
                    found.append((folder.parent.name, path))
    return found


def _is_hash(name: str) -> bool:
    return len(name) == _HASH_DIGITS and all(digit in "0123456789abcdef" for digit in name)


def _deleted(files: Sequence[tuple[str, Path]], dry_run: bool) -> list[GarbageKind]:
    from hopyard._runtime.snapshot_folder import remove, size_of
    from hopyard.client.types import GarbageKind

    counted: dict[tuple[str, str], tuple[int, int]] = {}
    for place, path in files:
        kind = _COPIES if _is_hash(path.name) else _PARTIALS
        count, size = counted.get((kind, place), (0, 0))
        with suppress(FileNotFoundError):
            counted[kind, place] = (count + 1, size + size_of(path))
            if not dry_run:
                remove(path)
    return [GarbageKind(kind, place, count, size) for (kind, place), (count, size) in counted.items()]


def _bytes(found: Sequence[GarbageKind] | Sequence[KeptForOthers]) -> int:
    return sum(one.size_bytes for one in found)


def _show(got: Garbage) -> None:
    from rich.table import Table

    from hopyard._common import formatting
    from hopyard.cli.output import emit, say

    for note in got.notes:
        say(note)
    _show_kept(got.kept)
    _show_experiments(got.experiments)
    if got.store is not None:
        _show_store(got.store)
    if not got.found:
        emit("no garbage found")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("what", "where", "number", "size"):
        table.add_column(column, justify="right" if column in ("number", "size") else "left")
    for one in got.found:
        table.add_row(one.kind, one.place, str(one.count), formatting.size(one.size_bytes))
    emit(table)
    total = formatting.size(_bytes(got.found))
    emit(f"{total} would be freed; nothing was changed" if got.dry_run else f"{total} freed")


def _show_experiments(used: Sequence[ExperimentStorage]) -> None:
    """Print which experiments use the most space, and for what."""
    from rich.table import Table

    from hopyard._common import formatting
    from hopyard.cli.output import emit

    if not used:
        return
    columns = ("experiment", "snapshots", "shared", "logs", "code", "journal", "in all")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, justify="left" if column == "experiment" else "right")
    for one in used[:_MOST_SHOWN]:
        sizes = (one.snapshot_bytes, one.shared_bytes, one.log_bytes, one.bundle_bytes, one.journal_bytes)
        table.add_row(", ".join(one.experiments), *map(formatting.size, (*sizes, one.size_bytes)))
    rest = used[_MOST_SHOWN:]
    if rest:
        total = formatting.size(sum(one.size_bytes for one in rest))
        table.add_row(f"{formatting.count(len(rest), 'other')}", *[""] * (len(columns) - 2), total)
    emit(table)


def _show_store(store: StoreUse) -> None:
    """Print the usage and the quota of the store, and the training time needed to recreate snapshots that may be evicted."""
    from hopyard._common import formatting
    from hopyard.cli.output import emit

    if store.quota_bytes is None and not store.used_bytes:
        return
    bounds = "without a quota" if store.quota_bytes is None else f"of a quota of {formatting.size(store.quota_bytes)}"
    emit(
        f"snapshots in the store: {formatting.size(store.used_bytes)} {bounds}; "
        f"{formatting.size(store.needed_bytes)} of them are needed now"
    )
    if store.spare:
        spare = formatting.size(store.used_bytes - store.needed_bytes)
        emit(
            f"recreating the other {store.spare} ({spare}) would take {formatting.short_time(store.spare_seconds)} of training; the "
            f"next to be evicted ({formatting.size(store.next_bytes)}): {formatting.short_time(store.next_seconds)}"
        )
    if store.quota_bytes is not None and store.needed_bytes > store.quota_bytes:
        above = formatting.size(store.needed_bytes - store.quota_bytes)
        emit(f"needed snapshots exceed the quota by {above}; they are kept until nothing needs them")


def _show_kept(kept: Sequence[KeptForOthers]) -> None:
    """Print the snapshots that experiments keep only for other experiments, and the training time needed to recreate them."""
    from rich.table import Table

    from hopyard._common import formatting
    from hopyard.cli.output import emit

    if not kept:
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("kept for others by", "number", "size", "training to recreate", ""):
        table.add_column(column, justify="left" if column in ("kept for others by", "") else "right")
    for one in kept:
        size, seconds = formatting.size(one.size_bytes), formatting.short_time(one.seconds_again)
        table.add_row(one.experiment, str(one.count), size, seconds, "given up" if one.given_up else "")
    total = sum(one.seconds_again for one in kept)
    table.add_row(
        "in all", str(sum(one.count for one in kept)), formatting.size(_bytes(kept)), formatting.short_time(total), ""
    )
    emit(table)
