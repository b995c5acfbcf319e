"""A run's snapshot on its way to this node, while everything else of the run is made ready."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from hopyard.errors import NotFound
from hopyard.v1 import application_pb2 as wire
from hopyard_nodeagent.runs.run import NodeRun
from hopyard_nodeagent.snapshots.transfers import Fetched

T = TypeVar("T")


class SnapshotMissing(Exception):
    """Nobody has the snapshot that a run goes on from; the message says who was asked."""


@asynccontextmanager
async def beside(making: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Do something beside what is done inside. It ends no later than that: what is not over then is cancelled."""
    task = asyncio.create_task(making)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # Whoever wants to know has asked.


async def arrived(run: NodeRun, fetching: asyncio.Task[Fetched]) -> None:
    """Wait until a run's snapshot is here, and note what had to be got.

    Raises:
        SnapshotMissing: nobody has it.
        HopyardError, OSError: it could not be got.
    """
    try:
        run.fetched = await fetching
    except NotFound as error:
        raise SnapshotMissing(str(error)) from error


async def announced(run: NodeRun, fetching: asyncio.Task[Fetched]) -> None:
    """Tell the process of a run, which has begun, what becomes of its snapshot.

    Raises:
        SnapshotMissing, HopyardError, OSError: as `arrived`; the process has been told, and ends the run.
    """
    try:
        await arrived(run, fetching)
    except Exception as error:
        run.tell(wire.AttachResponse(snapshot_arrival=wire.SnapshotArrival(error=str(error) or repr(error))))
        raise
    run.tell(wire.AttachResponse(snapshot_arrival=wire.SnapshotArrival(verified=run.fetched.size > 0)))
