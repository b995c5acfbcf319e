"""The commands `drain`, `undrain` and `forget`, which take nodes out of a cluster and back into it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from hopyard.cli.completion import complete_node
from hopyard.cli.options import Data, Json, Server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from hopyard.client.async_client import AsyncClient
    from hopyard.client.types import Node

_Name = Annotated[str, typer.Argument(metavar="NODE", help="Id of the node.", autocompletion=complete_node)]

T = TypeVar("T")


def register(app: typer.Typer) -> None:
    """Add the commands `drain`, `undrain` and `forget` to the command line `app`."""
    for command in (drain, undrain, forget):
        app.command(rich_help_panel="Act")(command)


def drain(
    node: _Name,
    deadline: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="End the runs that are left after this time, such as 10m; their jobs continue elsewhere from their last "
            "snapshots; default: wait for their next boundary.",
            show_default=False,
        ),
    ] = None,
    server: Server = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Take a node out of service, for example for maintenance.

    Its runs are suspended at their next boundary and continue on other nodes, and snapshots that only it has are stored.
    No run starts on it until `hopyard undrain`, also after restarts of its agent and of the scheduler. It is DRAINING,
    then DRAINED: now its agent can be stopped without a loss. `hopyard nodes --watch` shows that. A repeated command with
    --deadline sets a new deadline.

    **Examples:** `hopyard drain gpu3`, `hopyard drain gpu3 --deadline 10m`
    """
    seconds = None
    if deadline is not None:
        from hopyard.spec.units import option_seconds

        seconds = option_seconds("--deadline", deadline)
    found = _on_cluster(server, data, "hopyard drain", lambda client: client.drain_node(node, deadline=seconds))
    _show(found, json)


def undrain(node: _Name, server: Server = None, data: Data = None, json: Json = False) -> None:
    """Let runs start again on a node that was drained.

    **Example:** `hopyard undrain gpu3`
    """
    found = _on_cluster(server, data, "hopyard undrain", lambda client: client.undrain_node(node))
    _show(found, json)


def forget(
    node: _Name,
    force: Annotated[
        bool, typer.Option("--force", help="Also forget a node that had the only copies of snapshots.")
    ] = False,
    server: Server = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Remove a LOST node, and its drain, from the list of nodes.

    The node of a connected agent is not removed: stop the agent first. If an agent with this name connects later, its
    node is in the list again. The scheduler removes lost nodes by itself after a day (`hopyard scheduler --forget-lost`).

    **Examples:** `hopyard forget gpu3`, `hopyard forget gpu3 --force`
    """
    from hopyard.cli.output import emit, emit_json

    _on_cluster(server, data, "hopyard forget", lambda client: client.forget_node(node, force=force))
    if json:
        emit_json({"node": node, "forgotten": True})
    else:
        emit(f"forgot {node}")


def _on_cluster(server: str | None, data: Path | None, purpose: str, ask: Callable[[AsyncClient], Awaitable[T]]) -> T:
    """Call `ask` with a client of a running cluster.

    Raises:
        NotFound: No cluster runs in the data directory, so it has no nodes.
    """
    import asyncio

    from hopyard.cli.connect import stopped_data_dir, with_client
    from hopyard.errors import NotFound

    idle = asyncio.run(stopped_data_dir(server, data))
    if idle is not None:
        raise NotFound(f"no cluster runs in {idle}, so it has no nodes; `hopyard up` starts it")
    return with_client(server, data, purpose, ask)


def _show(node: Node, json: bool) -> None:
    from hopyard.cli.output import emit, emit_json

    if json:
        emit_json(node)
        return
    why = f" ({node.reason})" if node.reason else ""
    emit(f"{node.id} is {node.state.value}{why}")
