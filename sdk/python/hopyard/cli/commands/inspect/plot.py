"""The command `plot`: plots experiments, traces (recorded learning curves) and simulation results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from hopyard.cli.completion import complete_experiment
from hopyard.cli.options import Data, Json, Server

if TYPE_CHECKING:
    from hopyard.client.async_client import AsyncClient
    from hopyard.plots import Search

Kind = Literal[
    "curves", "durations", "boxes", "capacity", "orders", "gantt", "gangs", "hops", "pools", "slots", "jobs_at_R"
]

_FILES: Final = (".json", ".jsonl", ".gz")


def register(app: typer.Typer) -> None:
    """Add the command `plot` to the command line `app`."""
    app.command(rich_help_panel="Look")(plot)


def plot(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[EXPERIMENT|FILE]...",
            help="Experiments [default: the newest], trace files, results of hopyard simulate --json.",
            show_default=False,
            autocompletion=complete_experiment,
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("-o", "--to", metavar="FILE", help="Output file: .svg or .png.", show_default=False)
    ] = None,
    kind: Annotated[
        Kind | None, typer.Option("--kind", help="Kind of plot. [default: by the input]", show_default=False)
    ] = None,
    over: Annotated[
        Literal["position", "time"] | None,
        typer.Option("--over", help="The x axis of curves and durations.", show_default=False),
    ] = None,
    server: Server = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Plot an experiment, traces, or results of simulations.

    Kinds: learning curves (**curves**); training time of jobs (**durations**); time to the target by policy
    (**boxes**), by number of slots (**capacity**) and by order of configurations (**orders**); jobs by slot and
    time (**gantt**); number of slots of each job (**gangs**); training of models on data partitions, and transfers
    (**hops**); slots of promising jobs, which the policy expects to reach the target, and of other jobs (**pools**);
    slots that promising jobs would use and deserve (**slots**, HyperDrive, figure 4); jobs trained to the end
    (**jobs_at_R**). With --json the plotted values are printed, and -o is optional.

    **Examples:** `hopyard plot digits -o curves.svg`, `hopyard plot digits --kind gantt -o gantt.png`,
    `hopyard plot results.json --kind capacity -o capacity.svg`
    """
    from hopyard.cli.errors import WrongUse
    from hopyard.cli.output import emit, emit_json

    if to is None and not json:
        raise WrongUse("name the output: -o FILE.svg or FILE.png, or --json for the plotted values")
    from hopyard.plots import default_kind, document, gather, need_writable, save

    if to is not None:
        need_writable(to)
    searches = _searches(inputs, kind, server, data)
    chosen = kind or default_kind(searches)
    shown = gather(searches, chosen, over)
    if to is not None:
        save(shown, to)
    if json:
        emit_json({"kind": chosen, "to": to, "shows": document(shown)})
    else:
        emit(str(to))


def _searches(inputs: list[str] | None, kind: Kind | None, server: str | None, data: Path | None) -> list[Search]:
    """Return the searches to plot, in the order of the inputs of the command.

    An experiment is one search; so is a file of traces; a file written by `hopyard simulate --json` has one search for each
    simulation. A cluster is contacted only if an input is an experiment.

    Args:
        inputs: Ids or names of experiments, and files; None or empty: the newest experiment.
        kind: Kind of the plot, which determines what is read of an experiment; None: chosen by the inputs.
        server: Address of the scheduler, the value of --server; None: use the data directory.
        data: The data directory, the value of --data; None: `./hopyard-data`.

    Raises:
        NotFound: There is no such file or experiment.
        InvalidInput: A file contains neither traces nor results of simulations.
    """
    from hopyard.cli.connect import find, with_client
    from hopyard.plots.experiments import read_experiment
    from hopyard.plots.files import read

    found: list[list[Search]] = [read(Path(one)) if _is_file(one) else [] for one in inputs or ()]
    names: list[tuple[int, str | None]] = [(place, one) for place, one in enumerate(inputs or ()) if not _is_file(one)]
    if not inputs:
        found, names = [[]], [(0, None)]

    async def ask(client: AsyncClient) -> None:
        for place, name in names:
            found[place] = [await read_experiment(client, await find(client, name), kind)]

    if names:
        with_client(server, data, "hopyard plot", ask, read_only=True)
    return [search for some in found for search in some]


def _is_file(given: str) -> bool:
    return "/" in given or given.endswith(_FILES) or Path(given).is_file()
