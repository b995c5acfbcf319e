"""The command `results`: shows the results of an experiment, or exports them for other tools."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from hopyard.cli.options import Data, Experiment, Json, Server

if TYPE_CHECKING:
    from hopyard.client.async_client import AsyncClient
    from hopyard.client.types import Experiment as ExperimentValue
    from hopyard.results.publisher import Published, Sink
    from hopyard.results.rows import Results

Format = Literal["table", "csv", "json", "parquet", "tensorboard", "mlflow"]

_SUFFIXES: Final[dict[str, Format]] = {".csv": "csv", ".json": "json", ".parquet": "parquet"}
_CURVES: Final = ("tensorboard", "mlflow")


def register(app: typer.Typer) -> None:
    """Add the command `results` to the command line `app`."""
    app.command(rich_help_panel="Look")(results)


def results(
    experiment: Experiment = None,
    form: Annotated[
        Format | None,
        typer.Option("--format", help="Output format. [default: by the file's suffix, else table]"),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--to",
            metavar="FILE|DIR|URI",
            help="The file; TensorBoard's log directory; MLflow's tracking URI, or a folder for its database. "
            "[default: stdout]",
            show_default=False,
        ),
    ] = None,
    reports: Annotated[bool, typer.Option("--reports", help="One row per report instead of one per job.")] = False,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="TensorBoard and MLflow: continue until the experiment has ended.")
    ] = False,
    server: Server = None,
    data: Data = None,
    json: Json = False,
    csv: Annotated[bool, typer.Option("--csv", hidden=True)] = False,
) -> None:
    """Show an experiment's results, or write them for other tools.

    Formats are tables with one row per job, or with --reports one row per report; and learning curves for TensorBoard
    and MLflow.

    An existing file is replaced. TensorBoard and MLflow receive only what they do not have yet.

    **Examples:** `hopyard results digits -o digits.csv`, `hopyard results --reports -o reports.parquet`,
    `hopyard results --format tensorboard -o runs -f`, `hopyard results --format mlflow -o http://localhost:5000`
    """
    from hopyard._common.formatting import count
    from hopyard.cli.connect import find, with_client
    from hopyard.cli.errors import WrongUse
    from hopyard.cli.output import emit, emit_json, say

    if csv:  # users may expect --csv, because there is --json
        raise WrongUse("there is no --csv: -o FILE.csv writes a file, --format csv to stdout")
    chosen_form = form or _SUFFIXES.get(Path(to).suffix if to is not None else "", "json" if json else "table")
    _check_use(chosen_form, to, reports, follow)
    to = to if to is not None or chosen_form != "mlflow" else os.environ.get("MLFLOW_TRACKING_URI")
    if chosen_form in ("parquet", *_CURVES) and to is None:
        raise WrongUse(f"--format {chosen_form} needs a place to write to: -o {_place(chosen_form)}")

    async def table(client: AsyncClient) -> Results:
        return await client.results(await find(client, experiment), reports=reports)

    async def curves(client: AsyncClient) -> Published:
        from hopyard.results.publisher import publish

        chosen = await find(client, experiment)
        assert to is not None
        with _sink(chosen_form, to, chosen, follow) as sink:
            return await publish(client, chosen, sink, follow=follow)

    if chosen_form in _CURVES:
        done = with_client(server, data, "hopyard results", curves, read_only=True)
        if json:
            emit_json({"to": to, "jobs": done.jobs, "new_points": done.points})
        else:
            say(f"{count(done.jobs, 'job')}, {count(done.points, 'new point')}")
            emit(str(to))
        return
    found = with_client(server, data, "hopyard results", table, read_only=True)
    _write(found, chosen_form, to)
    if to is not None:
        if json:
            emit_json({"to": to, "rows": len(found), "columns": list(found.columns)})
        else:
            say(f"{count(len(found), 'row')}, {count(len(found.columns), 'column')}")
            emit(to)


def _check_use(form: Format, to: str | None, reports: bool, follow: bool) -> None:
    from hopyard.cli.errors import WrongUse

    if follow and form not in _CURVES:
        raise WrongUse(
            "--follow goes with --format tensorboard and mlflow; hopyard experiments and curve show what is there"
        )
    if reports and form in _CURVES:
        raise WrongUse(f"--reports goes with tables; --format {form} has every report anyway")
    if form == "table" and to is not None:
        raise WrongUse(f"{to}: its suffix is none of {', '.join(_SUFFIXES)}; give --format csv, json or parquet")


def _place(form: Format) -> str:
    return {"parquet": "FILE", "tensorboard": "DIR", "mlflow": "URI (or $MLFLOW_TRACKING_URI)"}[form]


def _sink(form: Format, to: str, experiment: ExperimentValue, follow: bool) -> Sink:
    if form == "tensorboard":
        from hopyard.results.tensorboard import TensorBoardSink

        return TensorBoardSink(Path(to), experiment, live=follow)
    from hopyard.results.mlflow import MlflowSink

    return MlflowSink(to, experiment)


def _write(found: Results, form: Format, to: str | None) -> None:
    from hopyard.cli.output import emit, emit_json
    from hopyard.results.files import json_document, write_csv, write_parquet, write_text

    if form == "table":
        emit(_table(found))
    elif form == "parquet":
        assert to is not None
        write_parquet(found, Path(to))
    elif to is not None:
        write_text(found, Path(to), form)
    elif form == "csv":
        write_csv(found, sys.stdout)
        sys.stdout.flush()
    else:
        emit_json(json_document(found))


def _table(found: Results) -> object:
    """Format results as a table for the terminal. Empty columns and the column `experiment` are omitted."""
    from rich.table import Table

    from hopyard._common import formatting

    shown = [name for name in found.columns if name != "experiment" and any(row[name] is not None for row in found)]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in shown:
        table.add_column(name, justify="left" if found.columns[name].value == "text" else "right", no_wrap=True)
    for row in found:
        table.add_row(*("" if row[name] is None else formatting.value(row[name]) for name in shown))
    return table
