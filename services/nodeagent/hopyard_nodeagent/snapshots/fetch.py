"""Fetches the snapshot of a run while the rest of the run is prepared, or even while its process runs already."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from hopyard.errors import NotFound
from hopyard.v1 import application_pb2 as wire
from hopyard_nodeagent.runs.run import NodeRun
from hopyard_nodeagent.snapshots.transfers import Fetched, NoCopy

T = TypeVar("T")


class SnapshotMissing(Exception):
    """No node and no store has the snapshot from which a run resumes. The message names the nodes that were asked.

    Args:
        message: The message.
        missing_at: Addresses of the agents that were asked, and have no undamaged copy.
    """

    def __init__(self, message: str, missing_at: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.missing_at = tuple(missing_at)


@asynccontextmanager
async def beside(making: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Return a context with a task that executes the coroutine `making`. The task is cancelled when the context ends."""
    task = asyncio.create_task(making)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # Mark the exception as retrieved: whoever needs the result has awaited the task.


async def arrived(run: NodeRun, fetching: asyncio.Task[Fetched]) -> None:
    """Wait until the snapshot of a run has arrived, and record that, and in `run.fetched` what was downloaded.

    Args:
        run: The run.
        fetching: The task that fetches the snapshot.

    Raises:
        SnapshotMissing: No node and no store has the snapshot.
        HopyardError, OSError: The snapshot could not be fetched.
    """
    try:
        run.fetched = await fetching
        run.arrived = True
    except NotFound as error:
        raise SnapshotMissing(str(error), error.missing_at if isinstance(error, NoCopy) else ()) from error


async def announced(run: NodeRun, fetching: asyncio.Task[Fetched]) -> None:
    """Wait for the snapshot of a run whose process runs already, and send the process a message: the snapshot is there, or an error.

    Args:
        run: The run.
        fetching: The task that fetches the snapshot.

    Raises:
        SnapshotMissing, HopyardError, OSError: As in `arrived`. The process has received a message with the error, and ends the run.
    """
    try:
        await arrived(run, fetching)
    except Exception as error:
        run.tell(wire.AttachResponse(snapshot_arrival=wire.SnapshotArrival(error=str(error) or repr(error))))
        raise
    run.tell(wire.AttachResponse(snapshot_arrival=wire.SnapshotArrival(verified=run.fetched.size > 0)))
