"""Implements the commands `pause`, `resume` and `stop` for one job."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from hopyard._common import formatting
from hopyard.cli.commands.session.run_session import SUSPEND_SECONDS
from hopyard.cli.connect import find, stopped_data_dir, where, with_client
from hopyard.cli.output import emit_json, say
from hopyard.client.async_client import AsyncClient
from hopyard.client.types import Experiment, Job

_POLL_SECONDS: Final = 0.1

Act = Callable[[AsyncClient, Experiment], Awaitable[Job]]


def pause_one(experiment: str | None, job: str, server: str | None, data: Path | None, json: bool) -> None:
    """Pause a job, wait up to 120 seconds until it has left its slots, and print its state, whether it has left them or not.

    Without a running cluster, it does not wait.

    Args:
        experiment: Id or name of the experiment; None: the newest one.
        job: Id of the job.
        server: Address of the scheduler, the value of --server; None: use the data directory.
        data: The data directory, the value of --data; None: `./hopyard-data`.
        json: Whether to print the job as JSON.

    Raises:
        NotFound: There is no such experiment or job.
        Conflict: The job or its experiment has ended.
    """
    idle = asyncio.run(stopped_data_dir(server, data))

    async def act(client: AsyncClient, chosen: Experiment) -> Job:
        found = await client.pause_job(chosen, job)
        end = time.monotonic() + SUSPEND_SECONDS
        while idle is None and found.state.live and time.monotonic() < end:
            await asyncio.sleep(_POLL_SECONDS)
            found = await client.job(chosen, job)
        return found

    _act("pause", act, experiment, server, data, json)


def resume_one(experiment: str | None, job: str, server: str | None, data: Path | None, json: bool) -> None:
    """Release a paused job, so that its policy may start it again, and print its state.

    Args:
        experiment: Id or name of the experiment; None: the newest one.
        job: Id of the job.
        server: Address of the scheduler, the value of --server; None: use the data directory.
        data: The data directory, the value of --data; None: `./hopyard-data`.
        json: Whether to print the job as JSON.

    Raises:
        NotFound: There is no such experiment or job.
        Conflict: The job or its experiment has ended.
    """
    idle = asyncio.run(stopped_data_dir(server, data))
    chosen = _act("resume", lambda client, chosen: client.resume_job(chosen, job), experiment, server, data, json)
    if idle is not None:
        say(f"no cluster runs in {idle} to train it: hopyard resume {chosen.id}{where(server, data)}")


def stop_one(experiment: str | None, job: str, server: str | None, data: Path | None, json: bool) -> None:
    """Terminate a job, and print its state. A job that has ended does not change.

    Args:
        experiment: Id or name of the experiment; None: the newest one.
        job: Id of the job.
        server: Address of the scheduler, the value of --server; None: use the data directory.
        data: The data directory, the value of --data; None: `./hopyard-data`.
        json: Whether to print the job as JSON.

    Raises:
        NotFound: There is no such experiment or job.
        Conflict: The experiment has ended.
    """
    _act("stop", lambda client, chosen: client.stop_job(chosen, job), experiment, server, data, json)


def _act(verb: str, act: Act, experiment: str | None, server: str | None, data: Path | None, json: bool) -> Experiment:
    async def work(client: AsyncClient) -> tuple[Experiment, Job]:
        chosen = await find(client, experiment)
        return chosen, await act(client, chosen)

    chosen, found = with_client(server, data, f"hopyard {verb}", work)
    if json:
        emit_json(found)
    else:
        reason = f": {formatting.first_line(found.reason)}" if found.reason else ""
        say(f"job {found.id} of {chosen.name} ({chosen.id}) is {found.state.value}{reason}")
    return chosen
