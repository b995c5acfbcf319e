"""Updates the model of the live view with the changes of an experiment and of its cluster."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, suppress
from typing import Any, Final

from hopyard.cli.live.model import LiveModel
from hopyard.client.async_client import AsyncClient
from hopyard.client.display.outcome import metrics_seen
from hopyard.client.types import Experiment, ExperimentState
from hopyard.client.wire import converters
from hopyard.errors import HopyardError
from hopyard.policy.vocabulary.reasons import NEEDS_A_PERSON, ReasonCode

_GIVEN_UP: Final = NEEDS_A_PERSON | {ReasonCode.POLICY_ERROR}
"""Reasons for which the cluster pauses an experiment by itself, so that only a person can continue it."""

POLL_SECONDS: Final = 0.1
"""Seconds between two looks at the model."""

_CLUSTER_SECONDS: Final = 2.0


async def feed(client: AsyncClient, experiment: Experiment, model: LiveModel) -> None:
    """Update a model with the reports so far and then with all changes until the experiment ends.

    Args:
        client: The client of the cluster.
        experiment: The experiment.
        model: The model of the live view to update.
    """
    model.apply(experiment, time.monotonic())
    by_job: dict[str, list[Any]] = {}
    statistics = await client.statistics(experiment)
    model.load_metrics(metrics_seen(statistics))
    for one in statistics:
        by_job.setdefault(one.job, []).append(one)
    for job, reports in by_job.items():
        model.load_curve(job, converters.curve(reports, experiment.metric.name))
    async with aclosing(client.watch(experiment)) as changes:
        async for change in changes:
            model.apply(change, time.monotonic())


async def watch_cluster(client: AsyncClient, model: LiveModel) -> None:
    """Query the cluster every two seconds, and update the model with its nodes.

    `model.trouble` is set to the problem that blocks the cluster; empty: none.

    A failed query changes nothing. It never returns; cancel it to stop.
    """
    while True:
        with suppress(HopyardError):  # other calls wait for an unreachable scheduler
            model.trouble = (await client.cluster()).trouble
            model.heard(time.monotonic())
            model.apply_nodes(await client.nodes())
        await asyncio.sleep(_CLUSTER_SECONDS)


async def given_up(model: LiveModel) -> None:
    """Wait until the experiment that `model` shows is paused for one of the reasons `_GIVEN_UP`. If it never is, this never returns."""
    while True:
        present = model.experiment
        if present and present.reason_code in _GIVEN_UP and present.state is ExperimentState.PAUSED:
            return
        await asyncio.sleep(POLL_SECONDS)
