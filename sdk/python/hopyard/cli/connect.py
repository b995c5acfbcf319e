"""From --server and --data to a client: a cluster that runs, or one opened for as long as the command takes."""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

from hopyard.cli.errors import WrongUse
from hopyard.cli.output import say
from hopyard.client.address import DATA_VARIABLE, DEFAULT_DATA, SERVER_VARIABLE, read_address
from hopyard.client.async_client import AsyncClient
from hopyard.client.local_cluster.data_dir_lock import is_locked, lock_holder
from hopyard.client.local_cluster.embedded import EmbeddedCluster
from hopyard.client.local_cluster.processes import is_serving
from hopyard.client.types import Experiment, ExperimentState, Node, NodeState
from hopyard.errors import Conflict, NotFound, Unavailable

T = TypeVar("T")

_SETTLE_SECONDS: Final = 15.0
_POLL_SECONDS: Final = 0.1
_QUIET_SECONDS: Final = 2.0


def choose(server: str | None, data: Path | None) -> tuple[str | None, Path]:
    """What --server and --data mean together with the environment: an address, or a data directory.

    Raises:
        WrongUse: Both were given.
    """
    if server is not None and data is not None:
        # One of them may come from the environment: what was typed wins.
        if os.environ.get(SERVER_VARIABLE) == server:
            return None, data
        if os.environ.get(DATA_VARIABLE) == str(data):
            return server, data
        raise WrongUse("--server and --data cannot be given together: a server knows its own data directory")
    return server, data if data is not None else DEFAULT_DATA


def where(server: str | None, data: Path | None) -> str:
    """The options, with a blank before them, that lead the next command to the same cluster as this one's.

    Args:
        server: The address that was given.
        data: The data directory that was given.
    """
    server, folder = choose(server, data)
    if server is not None:
        return "" if os.environ.get(SERVER_VARIABLE) == server else f" --server {server}"
    known = str(folder) == (os.environ.get(DATA_VARIABLE) or str(DEFAULT_DATA))
    return "" if known else f" --data {shlex.quote(str(folder))}"


async def running_server(data: Path) -> str | None:
    """The address of the cluster that serves a data directory; None: none does.

    Raises:
        Conflict: Somebody holds the directory, but does not serve (any more, or yet).
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


@asynccontextmanager
async def connected(
    server: str | None, data: Path | None, *, purpose: str, agent: bool = False, fresh: bool = False
) -> AsyncIterator[AsyncClient]:
    """A client for a command that looks or acts.

    When nothing serves the data directory its services are opened for the moment, without an agent: so nothing trains.
    With `agent`, what lies on the node can be read too; it is left out while an experiment could train on it.
    With `fresh`, a data directory in which no cluster has run yet is made.

    Raises:
        NotFound: No cluster has ever run in the data directory.
    """
    server, folder = choose(server, data)
    if server is None:
        server = await running_server(folder)
    if server is not None:
        async with AsyncClient(server) as client:
            yield client
        return
    if not fresh:
        _need_cluster(folder)
    # Usually it takes a moment and needs no words.
    told = asyncio.get_running_loop().call_later(_QUIET_SECONDS, say, f"opening {folder} (no cluster runs there)")
    cluster = EmbeddedCluster(folder, slots=0, purpose=purpose)
    try:
        address = await cluster.start()
        told.cancel()
        async with AsyncClient(address) as client:
            if agent and not await client.experiments(ExperimentState.RUNNING):
                await cluster.start_agent(1)
                await joined(client.nodes)
            yield client
    finally:
        told.cancel()
        await cluster.stop()


async def joined(nodes: Callable[[], Awaitable[list[Node]]], poll: float = _POLL_SECONDS) -> None:
    """Wait until a node is up: an agent serves before its session with the scheduler is open.

    Args:
        nodes: Asks for the nodes there are.
        poll: Seconds between two questions.

    Raises:
        Unavailable: None has come up in the usual time.
    """
    end = time.monotonic() + _SETTLE_SECONDS
    while not any(node.state is NodeState.UP for node in await nodes()):
        if time.monotonic() > end:
            raise Unavailable(f"the node agent has not joined its cluster within {_SETTLE_SECONDS:g} s")
        await asyncio.sleep(poll)


async def resting(server: str | None, data: Path | None) -> Path | None:
    """The data directory meant, if no cluster serves it, so that nothing trains there; None: one does.

    Raises:
        NotFound: No cluster has ever run in it.
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
) -> T:
    """Run `work` with a client; see `connected`."""

    async def main() -> T:
        async with connected(server, data, purpose=purpose, agent=agent, fresh=fresh) as client:
            return await work(client)

    return asyncio.run(main())


async def find(client: AsyncClient, given: str | None) -> Experiment:
    """The experiment with this id; else the newest with this name; without either, the newest of all.

    Raises:
        NotFound: There is none.
    """
    if given is not None:
        try:
            return await client.get(given)
        except NotFound as error:
            named = [one for one in await client.experiments() if one.name == given]
            if not named:
                raise error
            return named[0]
    there = await client.experiments()
    if not there:
        raise NotFound("there is no experiment yet; `hopyard run FILE` starts one")
    return there[0]


async def find_unfinished(client: AsyncClient, given: str | None) -> tuple[Experiment, list[Experiment]]:
    """The experiment to go on with: the one named by id, else the newest that is paused, else one that has not ended.

    With a name only experiments of that name are looked at.

    Returns:
        It, and the other unfinished ones among which it was chosen. When all have ended, the newest.

    Raises:
        NotFound: There is none at all.
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
    if not (folder / "cluster.lock").exists():
        raise NotFound(
            f"{folder}: no cluster has run here; start one with `hopyard run FILE`, or name one with --server or --data"
        )
