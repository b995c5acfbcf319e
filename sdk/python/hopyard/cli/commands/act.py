"""Commands that act on an experiment: pause, stop, wait; `resume` stands with `run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hopyard.cli.options import Data, Experiment, Json, Server

if TYPE_CHECKING:
    from hopyard.client.aio import AsyncClient
    from hopyard.client.types import Experiment as ExperimentValue

_PANEL = "Act"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (pause, stop, wait):
        app.command(rich_help_panel=_PANEL)(command)


def pause(experiment: Experiment = None, server: Server = None, data: Data = None, json: Json = False) -> None:
    """Suspend an experiment: its jobs save and leave their machines. `hopyard resume` goes on.

    Returns once it is paused.
    """
    from hopyard.cli.connect import find, with_client
    from hopyard.cli.session import SUSPEND_SECONDS
    from hopyard.client.types import ExperimentState

    async def act(client: AsyncClient) -> ExperimentValue:
        chosen = await find(client, experiment)
        present = await client.pause(chosen)
        if present.state.ended or present.state is ExperimentState.PAUSED:
            return present
        return await client.wait(present, SUSPEND_SECONDS, until={ExperimentState.PAUSED})

    _tell(with_client(server, data, "hopyard pause", act), json)


def stop(experiment: Experiment = None, server: Server = None, data: Data = None, json: Json = False) -> None:
    """End an experiment: its jobs are terminated. What they reported, and the best job's snapshot, stay."""
    from hopyard.cli.connect import find, with_client

    async def act(client: AsyncClient) -> ExperimentValue:
        return await client.stop(await find(client, experiment))

    _tell(with_client(server, data, "hopyard stop", act), json)


def wait(
    experiment: Experiment = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0, metavar="SECONDS", help="Fail when it takes longer.")
    ] = None,
    server: Server = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Wait until an experiment has ended. Exit code 1 when it failed, or when the time is up.

    **Example:** `hopyard wait digits --timeout 3600 && hopyard best digits`
    """
    from hopyard.cli.connect import find, with_client
    from hopyard.cli.errors import EXIT_FAILED
    from hopyard.client.types import ExperimentState

    async def act(client: AsyncClient) -> ExperimentValue:
        return await client.wait(await find(client, experiment), timeout)

    ended = with_client(server, data, "hopyard wait", act)
    _tell(ended, json)
    if ended.state is ExperimentState.FAILED:
        raise typer.Exit(EXIT_FAILED)


def _tell(experiment: ExperimentValue, json: bool) -> None:
    from hopyard.cli.output import emit_json, say

    if json:
        emit_json(experiment)
    else:
        reason = f": {experiment.reason}" if experiment.reason else ""
        say(f"{experiment.name} ({experiment.id}) is {experiment.state.value}{reason}")
