"""The command `trace`: writes the learning curves of an experiment's jobs with their times, as input for simulations."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hopyard.cli.options import Data, Experiment, Json, Server

if TYPE_CHECKING:
    from hopyard.cli.commands.inspect.trace_export import Recording
    from hopyard.client.async_client import AsyncClient


def register(app: typer.Typer) -> None:
    """Add the command `trace` to the command line `app`."""
    app.command(rich_help_panel="Look")(trace)


def trace(
    experiment: Experiment = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--to",
            metavar="FILE",
            help="The output file, compressed if its name ends in .gz. [default: stdout]",
            show_default=False,
        ),
    ] = None,
    server: Server = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Write an experiment's traces: its jobs' curves and times.

    The output has one JSON line per job: its hyperparameters, the metric of each report, and the training seconds since
    the previous report. A position that was trained again after a rewind occurs once. Jobs without a report are
    omitted.

    With --json the traces are one JSON document; with --json and -o, the document describes the written file. An
    existing file is replaced only if it contains traces.

    **Examples:** `hopyard trace digits -o digits.jsonl.gz`, `hopyard trace | jq .metrics[-1]`
    """
    from hopyard.cli.commands.inspect.trace_export import record
    from hopyard.cli.connect import find, with_client
    from hopyard.cli.output import emit, emit_json, say
    from hopyard.errors import NotFound
    from hopyard.traces import document, need_writable, to_line

    if to is not None:
        need_writable(to)

    async def ask(client: AsyncClient) -> Recording:
        return await record(client, await find(client, experiment))

    found = with_client(server, data, "hopyard trace", ask, read_only=True)
    if not found.traces:
        raise NotFound(found.told())
    if to is not None:
        found.write(to)
    say(found.told())
    if json:
        told = {"file": to, **found.counts()} if to is not None else {"traces": list(map(document, found.traces))}
        emit_json({"experiment": found.experiment.id, **told})
    elif to is not None:
        emit(str(to))
    else:
        sys.stdout.writelines(map(to_line, found.traces))
        sys.stdout.flush()
