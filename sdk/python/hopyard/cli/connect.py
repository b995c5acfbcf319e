"""Creates the client for a command from the options --server and --data.

The client connects to a running cluster. In a data directory without one, read-only commands read the files
(`AsyncClient.stored`), and for all others services run during the command.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from hopyard.cli.errors import WrongUse
from hopyard.cli.output import say
from hopyard.client.address import DATA_VARIABLE, DEFAULT_DATA, SERVER_VARIABLE, read_address
from hopyard.client.async_client import AsyncClient
from hopyard.client.local_cluster.data_dir_lock import has_data, is_locked, lock_holder
from hopyard.client.local_cluster.processes import is_serving
from hopyard.client.types import Experiment, ExperimentState
from hopyard.errors import Conflict, NotFound

T = TypeVar("T")

_SETTLE_SECONDS: Final = 15.0
_POLL_SECONDS: Final = 0.1
_QUIET_SECONDS: Final = 2.0


def choose(server: str | None, data: Path | None) -> tuple[str | None, Path]:
    """Return the cluster that --server, --data and their environment variables HOPYARD_SERVER and HOPYARD_DATA select.

    An option that was typed takes precedence over a variable.

    Args:
        server: The value of --server, else of its variable; None: neither is set.
        data: The value of --data, else of its variable; None: neither is set, so it is `./hopyard-data`.

    Returns:
        Address of the scheduler (None: the data directory selects the cluster), and the data directory.

    Raises:
        WrongUse: Both options were typed.
    """
    if server is not None and data is not None:
        # One of them may come from the environment; the other one was typed and takes precedence.
        if os.environ.get(SERVER_VARIABLE) == server:
            return None, data
        if os.environ.get(DATA_VARIABLE) == str(data):
            return server, data
        raise WrongUse("--server and --data cannot be given together: a server knows its own data directory")
    return server, data if data is not None else DEFAULT_DATA


def where(server: str | None, data: Path | None) -> str:
    """Return the options for another command to use the same cluster, with a leading blank; empty: it needs no options.

    Args:
        server: Address of the scheduler, the value of --server; None: use the data directory.
        data: The data directory, the value of --data; None: `./hopyard-data`.
    """
    server, folder = choose(server, data)
    if server is not None:
        return "" if os.environ.get(SERVER_VARIABLE) == server else f" --server {server}"
    known = str(folder) == (os.environ.get(DATA_VARIABLE) or str(DEFAULT_DATA))
    return "" if known else f" --data {shlex.quote(str(folder))}"


async def running_server(data: Path) -> str | None:
    """Return Address of the scheduler that serves the data directory `data`, or None if no cluster runs there.

    Raises:
        Conflict: A process holds the directory's lock, but its scheduler has not answered within 15 seconds.
    """
    end = time.monotonic() + _SETTLE_SECONDS
    while True:
        address = read_address(data)
        if address is not None and await is_serving(address):
            return address
        if not is_locked(data):
            return None
        if time.monotonic() > end:
            holder = lock_holder(data)
            who = f"{holder[1]} (process {holder[0]})" if holder else "another process"
            raise Conflict(f"{data}: {who} holds this data directory, but its scheduler does not answer")
        await asyncio.sleep(_POLL_SECONDS)


def client_of(server: str, data: Path | None, **settings: Any) -> AsyncClient:
    """Return a client of the scheduler at `server`.

    Args:
        server: The address.
        data: The data directory whose address file contains the address; None: the address was given.
        **settings: Further keyword arguments of `AsyncClient`.
    """
    return AsyncClient(server, **settings) if data is None else AsyncClient(data=data, **settings)


@asynccontextmanager
async def connected(
    server: str | None,
    data: Path | None,
    *,
    purpose: str,
    agent: bool = False,
    fresh: bool = False,
    read_only: bool = False,
) -> AsyncIterator[AsyncClient]:
    """Return a context manager that opens a client for a command which queries or changes a cluster.

    If no cluster serves the data directory, a read-only command reads the directory. For other commands the services run there
    during the command, without a node agent, so that nothing trains.

    Args:
        server: Address of the scheduler, the value of --server; None: use the data directory.
        data: The data directory, the value of --data; None: `./hopyard-data`.
        purpose: Description of the command, for the error message of others that find the directory locked.
        agent: Whether the services that run during the command include a node agent, so that files on the node are
            readable. The agent is not started if an experiment is RUNNING, since the experiment would then train.
        fresh: Whether to create a data directory in which no cluster has run.
        read_only: Whether the command changes nothing, so that it needs no services.

    Raises:
        NotFound: No cluster has run in the data directory, and `fresh` is False.
    """
    options = where(server, data) if read_only else ""
    given, folder = choose(server, data)
    server = given or await running_server(folder)
    if server is not None:
        async with client_of(server, None if given else folder) as client:
            yield client
        return
    if not fresh:
        _need_cluster(folder)
    if read_only:
        async with AsyncClient.stored(folder, options=options) as client:
            yield client
        return
    # The start usually takes less than two seconds and needs no message.
    notice = asyncio.get_running_loop().call_later(_QUIET_SECONDS, say, f"opening {folder} (no cluster runs there)")
    from hopyard._runtime.gpus import GpuOptions
    from hopyard._runtime.gpus.selection import NONE
    from hopyard.client.local_cluster.embedded import EmbeddedCluster

    cluster = EmbeddedCluster(folder, slots=0, purpose=purpose)
    try:
        address = await cluster.start()
        notice.cancel()
        async with AsyncClient(address) as client:
            if agent and not await client.experiments(ExperimentState.RUNNING):
                await cluster.start_agent(1, gpus=GpuOptions(NONE))
            yield client
    finally:
        notice.cancel()
        await cluster.stop()


async def stopped_data_dir(server: str | None, data: Path | None) -> Path | None:
    """Return the data directory that the options select if no cluster serves it, so that nothing trains there.

    None: a cluster runs, or --server was given.

    Args:
        server: Address of the scheduler, the value of --server; None: use the data directory.
        data: The data directory, the value of --data; None: `./hopyard-data`.

    Raises:
        NotFound: No cluster has run in the data directory.
    """
    server, folder = choose(server, data)
    if server is not None or await running_server(folder) is not None:
        return None
    _need_cluster(folder)
    return folder


def with_client(
    server: str | None,
    data: Path | None,
    purpose: str,
    work: Callable[[AsyncClient], Awaitable[T]],
    *,
    agent: bool = False,
    fresh: bool = False,
    read_only: bool = False,
) -> T:
    """Call `work` with a client in a new event loop and return its result.

    Args:
        server: Address of the scheduler, the value of --server; None: use the data directory.
        data: The data directory, the value of --data; None: `./hopyard-data`.
        purpose: Description of the command, for the error message of others that find the directory locked.
        work: Coroutine function that receives the client. The client is closed when it returns. Its errors propagate.
        agent: Whether a node agent runs during the command if no cluster serves the data directory and no experiment is RUNNING.
        fresh: Whether to create a data directory in which no cluster has run.
        read_only: Whether the command changes nothing; see `connected`.

    Raises:
        NotFound: No cluster has run in the data directory, and `fresh` is False.
    """

    async def main() -> T:
        async with connected(server, data, purpose=purpose, agent=agent, fresh=fresh, read_only=read_only) as client:
            return await work(client)

    return asyncio.run(main())


async def find(client: AsyncClient, given: str | None, *, only: bool = False) -> Experiment:
    """Return the experiment that a command line names.

    Args:
        client: The client of the cluster.
        given: Id of an experiment, else a name, of which the newest experiment is returned; None: the newest of all.
        only: Whether several experiments with the name `given` are an error, for commands that destroy.

    Raises:
        NotFound: There is no such experiment.
        Conflict: `only` is true, and several experiments have the name.
    """
    if given is not None:
        try:
            return await client.get(given)
        except NotFound as error:
            named = [one for one in await client.experiments() if one.name == given]
            if not named:
                raise error
            if only and len(named) > 1:
                ids = ", ".join(one.id for one in named)
                raise Conflict(f"{len(named)} experiments have the name {given}; name one by its id: {ids}") from None
            return named[0]
    there = await client.experiments()
    if not there:
        raise NotFound("there is no experiment yet; `hopyard run FILE` starts one")
    return there[0]


async def find_with_job(client: AsyncClient, given: str | None, job: str, command: str) -> Experiment:
    """Return the experiment that a command line names together with a job.

    Args:
        client: The client of the cluster.
        given: Id or name of the experiment; None: the newest of all, whose job `job` is meant.
        job: The job.
        command: The command, for the error message, such as "hopyard logs".

    Raises:
        NotFound: There is no such experiment.
        WrongUse: Only `job` is given, and it is no job of the newest experiment, but the id or name of an experiment.
    """
    chosen = await find(client, given)
    unknown = given is None and all(one.id != job for one in await client.jobs(chosen))
    if unknown and any(job in (one.id, one.name) for one in await client.experiments()):
        raise WrongUse(f"which job? {command} {job} JOB (hopyard jobs {job} lists them)")
    return chosen


async def find_unfinished(client: AsyncClient, given: str | None) -> tuple[Experiment, list[Experiment]]:
    """Select the experiment that `hopyard resume` continues.

    Args:
        client: The client of the cluster.
        given: Id of the experiment; or a name, to which the candidates are restricted; None: all experiments are candidates.

    Returns:
        The experiment with the id `given`, else the newest paused candidate, else the newest unfinished one, else the newest
        one; and the other unfinished candidates.

    Raises:
        NotFound: There is no candidate.
    """
    newest = await find(client, given)
    if given is not None and newest.id == given:
        return newest, []
    there = [one for one in await client.experiments() if given is None or one.name == given]
    unfinished = [one for one in there if not one.state.ended and one.state is not ExperimentState.ENDING]
    paused = [one for one in unfinished if one.state in (ExperimentState.PAUSED, ExperimentState.PAUSING)]
    chosen = next(iter(paused or unfinished), newest)
    return chosen, [one for one in unfinished if one.id != chosen.id]


def _need_cluster(folder: Path) -> None:
    if has_data(folder):
        return
    if (folder / "scheduler.lock").exists():
        raise NotFound(
            f"{folder}: a scheduler has run here, but its database is elsewhere; start its services, or name the data directory "
            "of its AppStat with --data"
        )
    raise NotFound(
        f"{folder}: no cluster has run here; start one with `hopyard run FILE`, or name one with --server or --data"
    )
