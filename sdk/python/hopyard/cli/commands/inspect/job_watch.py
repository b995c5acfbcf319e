"""Implements `hopyard jobs --watch` on a terminal: the live view of an experiment that this command did not start."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

from rich.console import Console, Group

from hopyard.cli.commands.session.feed import feed, watch_cluster
from hopyard.cli.errors import Interrupted
from hopyard.cli.interrupts import Interrupts
from hopyard.cli.live.actions import LiveActions
from hopyard.cli.live.controls import Controls
from hopyard.cli.live.model import LiveModel
from hopyard.cli.live.screen import live_view
from hopyard.cli.output import emit, height, width
from hopyard.cli.tables import top_jobs
from hopyard.client.async_client import AsyncClient
from hopyard.client.types import Experiment

_HEIGHT: Final = 24
"""Number of lines of a terminal whose size is not known."""


async def watch_jobs(client: AsyncClient, experiment: Experiment, where: str) -> None:
    """Show the live view of an experiment on stdout until it ends or the user leaves, then print its best jobs.

    The experiment continues, unless the user pauses it with a key of the view.

    Args:
        client: The client of a running cluster.
        experiment: The experiment.
        where: The options with which other commands find the cluster, with a leading blank.

    Raises:
        Interrupted: SIGINT or SIGTERM was received.
    """
    model, left = LiveModel(experiment.name), asyncio.Event()
    controls = Controls(interrupt_effect="leave; the experiment continues")
    actions = LiveActions(client, experiment, controls, left.set)
    with Interrupts() as interrupts:
        feeding = asyncio.create_task(feed(client, experiment, model), name="watch")
        waits: list[asyncio.Task[Any]] = [
            feeding,
            asyncio.create_task(left.wait(), name="left"),
            asyncio.create_task(interrupts.first.wait(), name="interrupt"),
        ]
        cluster_watch = asyncio.create_task(watch_cluster(client, model), name="cluster watch")
        try:
            async with live_view(model, Console(file=sys.stdout), controls, actions.perform):
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if feeding.done():
                feeding.result()
        finally:
            for task in (*waits, cluster_watch):
                task.cancel()
            await asyncio.gather(*waits, cluster_watch, return_exceptions=True)
            await actions.close()
        if interrupts.first.is_set():
            raise Interrupted
    emit(Group(*top_jobs(model, width(), (height() or _HEIGHT) - 1, f"hopyard jobs {experiment.id}{where}")))
