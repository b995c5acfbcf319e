"""Shell completion of experiments and jobs of a running cluster, and of plugins.

Each `complete_...` function returns the completions that begin with `incomplete`, the word typed so far. It starts no cluster and
raises no errors. If no cluster answers within half a second, the result is empty.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from hopyard.client.async_client import AsyncClient

SECONDS: Final = 0.5
"""Time limit of a query to the cluster, in seconds."""

Offers = list[tuple[str, str]]
"""Completions, each with a short description."""


def complete_experiment(context: typer.Context, incomplete: str) -> Offers:
    """Return the ids and names of experiments that begin with `incomplete`; empty: no cluster answers.

    Ids come first, those of newer experiments before those of older ones. Names follow, those of older experiments first.

    Args:
        context: The options typed so far, which select the cluster.
        incomplete: The beginning of the word to complete.
    """
    return _matching(_ask(context, _experiments), incomplete)


def complete_job(context: typer.Context, incomplete: str) -> Offers:
    """Return the job ids that begin with `incomplete`, of the experiment on the command line or else of the newest one.

    Empty: no cluster answers, or there is no such experiment.

    Args:
        context: The arguments and options typed so far: the experiment, and the options that select the cluster.
        incomplete: The beginning of the word to complete.
    """
    given = context.params.get("experiment")
    return _matching(_ask(context, lambda client: _jobs(client, given)), incomplete)


def complete_experiment_or_job(context: typer.Context, incomplete: str) -> Offers:
    """Return completions for `[EXPERIMENT] JOB` that begin with `incomplete`.

    The first word may be a job of the newest experiment, or any experiment. The second word may be a job of the experiment that
    is the first word. Empty: no cluster answers, or there is no such experiment.

    Args:
        context: The arguments and options typed so far: the first word, and the options that select the cluster.
        incomplete: The beginning of the word to complete.
    """
    names = list(context.params.get("names") or ())

    async def both(client: AsyncClient) -> Offers:
        if names:
            return await _jobs(client, names[0])
        return await _jobs(client, None) + await _experiments(client)

    return _matching(_ask(context, both), incomplete)


def complete_node(context: typer.Context, incomplete: str) -> Offers:
    """Return the ids of nodes that begin with `incomplete`; empty: no cluster answers.

    Args:
        context: The options typed so far, which select the cluster.
        incomplete: The beginning of the word to complete.
    """
    return _matching(_ask(context, _nodes), incomplete)


def complete_policy(incomplete: str) -> Offers:
    """Return the names of the installed policies that begin with `incomplete`."""
    from hopyard._common.plugins import POLICIES, plugin_names

    return _matching([(name, "policy") for name in plugin_names(POLICIES)], incomplete)


def complete_plugin(incomplete: str) -> Offers:
    """Return the names of the installed plugins of all kinds that begin with `incomplete`."""
    from hopyard._common.plugins import KINDS, plugin_names

    return _matching([(name, kind) for kind, group in KINDS.items() for name in plugin_names(group)], incomplete)


def _matching(offers: Offers, incomplete: str) -> Offers:
    return [offer for offer in dict(offers).items() if offer[0].startswith(incomplete)]


async def _experiments(client: AsyncClient) -> Offers:
    found = await client.experiments()
    ids = [(one.id, f"{one.name}, {one.state.value}") for one in found]
    return ids + [(one.name, f"the newest is {one.id}") for one in found[::-1]]


async def _nodes(client: AsyncClient) -> Offers:
    return [(node.id, node.state.value) for node in await client.nodes()]


async def _jobs(client: AsyncClient, given: str | None) -> Offers:
    from hopyard._common import formatting
    from hopyard.cli.connect import find

    chosen = await find(client, given)
    return [
        (job.id, f"{job.state.value.lower()} at {job.position}, {formatting.hyperparameters(job.hyperparameters)}")
        for job in await client.jobs(chosen)
    ]


def _ask(context: typer.Context, work: Callable[[AsyncClient], Awaitable[Offers]]) -> Offers:
    """Call `work` with a client of the running cluster and return its result. Empty if no cluster runs, or after any error."""
    try:
        selected = _selected(context.params)
        if selected is None:
            return []
        import asyncio

        return asyncio.run(_within(*selected, work))
    except Exception:  # noqa: BLE001 - completion in a shell must not print errors
        return []


def _selected(params: dict[str, Any]) -> tuple[str, Path | None] | None:
    """Return the address of the cluster that the typed options select, and the data directory that contains it (None: it was given).

    Return None if no cluster runs.

    Args:
        params: The values of the options by name. Those typed on the command line take precedence over the environment.
    """
    from hopyard.client.address import DATA_VARIABLE, DEFAULT_DATA, SERVER_VARIABLE, read_address

    server, data = params.get("server"), params.get("data")
    if server is not None and (data is None or os.environ.get(SERVER_VARIABLE) != server):
        return str(server), None
    folder = Path(data or os.environ.get(DATA_VARIABLE) or DEFAULT_DATA)
    address = read_address(folder)
    return None if address is None else (address, folder)


async def _within(address: str, data: Path | None, work: Callable[[AsyncClient], Awaitable[Offers]]) -> Offers:
    import asyncio

    from hopyard.cli.connect import client_of

    async with asyncio.timeout(SECONDS):
        async with client_of(address, data, timeout=SECONDS, patience=0.0) as client:
            return await work(client)
