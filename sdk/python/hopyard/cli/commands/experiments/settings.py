"""The command `set`: changes settings of an experiment in any state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hopyard.cli.options import Data, Experiment, Json, Server

if TYPE_CHECKING:
    from hopyard.client.async_client import AsyncClient
    from hopyard.client.types import Experiment as ExperimentValue

_NONE: Final = "none"
_OPTIONS: Final = "--metric NAME, --slots N, --concurrency N, --target Y or --weight W"


def register(app: typer.Typer) -> None:
    """Add the command `set` to the command line `app`."""
    app.command("set", rich_help_panel="Act")(set_terms)


def set_terms(
    experiment: Experiment = None,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            metavar="NAME",
            help="The metric to optimize, while no report contains the present one; its mode stays.",
            show_default=False,
        ),
    ] = None,
    slots: Annotated[
        str | None,
        typer.Option(
            "--slots",
            metavar="N|none",
            help="Maximum number of slots in use at the same time.",
            show_default=False,
        ),
    ] = None,
    concurrency: Annotated[
        str | None,
        typer.Option(
            "--concurrency",
            metavar="N|none",
            help="Maximum number of jobs that train at the same time.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="Y|none",
            help="The experiment ends when a job reaches this value of the metric.",
            show_default=False,
        ),
    ] = None,
    weight: Annotated[
        float | None,
        typer.Option("--weight", metavar="W", help="Weight of its share of the cluster, above 0.", show_default=False),
    ] = None,
    server: Server = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Change the settings of an experiment, running or not.

    If a limit is lowered, the policy suspends the excess jobs, or after 30 s the scheduler does. `none` removes a
    setting. The number of jobs differs from the number of slots if a job trains on several slots.

    The metric can change while no decision depends on it: no report contains it, and the generator has proposed nothing
    since the first results. All reports so far are rated by the new metric.

    **Examples:** `hopyard set digits --slots 2`, `hopyard set digits --target 0.98 --weight 2`, `hopyard set
    --target none`, `hopyard set digits --metric accuracy`
    """
    import asyncio

    from hopyard.cli.commands.experiments.hints import next_step
    from hopyard.cli.connect import find, stopped_data_dir, where, with_client
    from hopyard.cli.errors import WrongUse
    from hopyard.cli.output import emit_json, say

    limits = {"slots": _count("--slots", slots), "concurrency": _count("--concurrency", concurrency)}
    goal = _number("--target", target)
    if metric is not None and not metric.strip():
        raise WrongUse("--metric: found an empty name, allowed is the name of a metric in the reports")
    values: dict[str, Any] = {"metric": metric, **limits, "target": goal, "weight": weight}
    given = {name: value for name, value in values.items() if value is not None}
    if not given:
        raise WrongUse(f"set at least one of {_OPTIONS}; `none` removes a limit or the target")
    clear = [name for name, value in given.items() if value == _NONE and name != "metric"]
    change = {name: value for name, value in given.items() if name not in clear}

    async def act(client: AsyncClient) -> ExperimentValue:
        return await client.update(await find(client, experiment), **change, clear=clear)

    idle = asyncio.run(stopped_data_dir(server, data))
    found = with_client(server, data, "hopyard set", act)
    if json:
        emit_json(found)
        return
    say(f"{found.name} ({found.id}) is {found.state.value}: {terms_of(found)}")
    if hint := next_step(found, idle, where(server, data), extended=False):
        say(hint)


def terms_of(experiment: ExperimentValue) -> str:
    """Return the settings of an experiment that `hopyard set` changes, as text: "metric loss (min), slots 4, ...". none: not set."""
    resources = experiment.spec.get("resources", {})
    target = experiment.metric.target
    shown = {
        "slots": resources.get("slots"),
        "concurrency": resources.get("concurrency"),
        "target": target,
        "weight": experiment.spec.get("weight", 1.0),
    }
    metric = f"metric {experiment.metric.name} ({experiment.metric.mode})"
    return ", ".join([metric, *(f"{name} {_NONE if value is None else f'{value:g}'}" for name, value in shown.items())])


def _count(option: str, given: str | None) -> int | str | None:
    from hopyard.cli.errors import WrongUse

    if given is None or given == _NONE:
        return given
    if not (given.isascii() and given.isdecimal() and int(given) >= 1):
        raise WrongUse(f"{option}: found {given!r}, allowed are an integer of at least 1, or none")
    return int(given)


def _number(option: str, given: str | None) -> float | str | None:
    from hopyard.cli.errors import WrongUse

    if given is None or given == _NONE:
        return given
    try:
        return float(given)
    except ValueError:
        raise WrongUse(f"{option}: found {given!r}, allowed are a number, or none") from None
