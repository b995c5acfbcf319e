"""Commands that transfer experiments between clusters: export, import."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hopyard.cli.options import Data, Experiment, Json, Server

if TYPE_CHECKING:
    from hopyard.client.async_client import AsyncClient
    from hopyard.client.types import Exported, ImportedExperiment

_PANEL = "Act"


def register(app: typer.Typer) -> None:
    """Add the commands `export` and `import` to the command line `app`."""
    app.command("export", rich_help_panel=_PANEL)(export)
    app.command("import", rich_help_panel=_PANEL)(import_)


def export(
    experiment: Experiment = None,
    to: Annotated[
        Path | None,
        typer.Option("-o", "--to", metavar="FILE", help="The output file. [default: ./ID.hopyard]", show_default=False),
    ] = None,
    no_snapshots: Annotated[
        bool, typer.Option("--no-snapshots", help="Omit the snapshots: imported jobs then start from the beginning.")
    ] = False,
    server: Server = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Write an experiment to one file, for another cluster.

    The file contains the journal, results, code and snapshots; `hopyard import` adds it to a cluster. The experiment
    must be paused or ended. Experiments of a group (`share`) are exported together.

    **Examples:** `hopyard export digits -o digits.hopyard`, `hopyard export --no-snapshots`
    """
    from hopyard._common import formatting
    from hopyard.cli.connect import find, with_client
    from hopyard.cli.output import emit, emit_json, say

    async def work(client: AsyncClient) -> Exported:
        chosen = await find(client, experiment)
        return await client.export_experiment(chosen, to, snapshots=not no_snapshots)

    got = with_client(server, data, "hopyard export", work)
    if json:
        emit_json(got)
        return
    say(
        f"{', '.join(got.experiments)}: {formatting.count(got.events, 'event')}, {formatting.count(got.statistics, 'report')}, "
        f"{formatting.count(got.snapshots, 'snapshot')}, {formatting.size(got.size_bytes)}"
    )
    if got.left_behind and not no_snapshots:
        jobs = ", ".join(dict.fromkeys(one.job for one in got.left_behind))
        say(
            f"{formatting.count(len(got.left_behind), 'snapshot')} of jobs {jobs} could not be read: imported jobs continue from "
            "an earlier one or from the beginning. Snapshots that only a node has are readable while it runs (hopyard up)"
        )
    emit(str(got.file))


def import_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A file that `hopyard export` wrote.", show_default=False)
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="ID",
            help="The id of the imported experiment. [default: its original id]",
            show_default=False,
        ),
    ] = None,
    server: Server = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Import an experiment from a file into this cluster.

    It has the exported state; `hopyard resume` or `hopyard extend` continues it. The hashes in the file are verified
    first. The experiment is imported completely or not at all; its id must not exist in this cluster. The experiments
    of a group keep their ids (no --as).

    **Examples:** `hopyard import digits.hopyard`, `hopyard import digits.hopyard --as digits-again --data elsewhere`
    """
    from hopyard._common import formatting
    from hopyard.cli.connect import where, with_client
    from hopyard.cli.output import emit_json, say

    async def work(client: AsyncClient) -> ImportedExperiment:
        return await client.import_experiment(file, name)

    if not file.is_file():  # before a data directory is created
        from hopyard.errors import NotFound

        raise NotFound(f"{file}: there is no such file")
    got = with_client(server, data, "hopyard import", work, fresh=True)
    one = got.experiment
    if json:
        emit_json(got)
        return
    say(f"{one.name} ({one.id}) is imported, {one.state.value}, with {formatting.count(got.snapshots, 'snapshot')}")
    then = "extend" if one.state.ended else "resume"
    say(f"hopyard {then} {one.id}{where(server, data)}")
