"""Fetches a run's snapshot while the rest of the run is prepared."""

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
    """No node and no store has the snapshot that a run resumes from. The message names those that were asked."""


@asynccontextmanager
async def beside(making: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Run a coroutine concurrently with the context; it is cancelled when the context ends."""
    task = asyncio.create_task(making)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # Mark the exception as retrieved; the context has awaited the task if it needs the result.


async def arrived(run: NodeRun, fetching: asyncio.Task[Fetched]) -> None:
    """Wait until a run's snapshot has arrived, and record what was downloaded.

    Raises:
        SnapshotMissing: No node and no store has it.
        HopyardError, OSError: It could not be fetched.
    """
    try:
        run.fetched = await fetching
    except NotFound as error:
        raise SnapshotMissing(str(error)) from error


async def announced(run: NodeRun, fetching: asyncio.Task[Fetched]) -> None:
    """Tell the running process whether its snapshot has arrived.

    Raises:
        SnapshotMissing, HopyardError, OSError: As `arrived`; the process has been told and ends the run.
    """
    try:
        await arrived(run, fetching)
    except Exception as error:
        run.tell(wire.AttachResponse(snapshot_arrival=wire.SnapshotArrival(error=str(error) or repr(error))))
        raise
    run.tell(wire.AttachResponse(snapshot_arrival=wire.SnapshotArrival(verified=run.fetched.size > 0)))
