"""Background tasks (asyncio) of a service, whose failures end the service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from hopyard._net.server.terse_errors import explained
from hopyard.errors import HopyardError

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Background:
    """The background tasks of one service.

    If a task raises, `wait` and `stop` raise the same error, so that the service ends. An error that is not a
    `HopyardError` is logged immediately, with the task's name and traceback. As a context manager it stops its tasks on
    exit.

    Args:
        name: Name of the service, for log entries.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._failure: BaseException | None = None
        self._failed = asyncio.Event()
        self._stopping = False

    @property
    def failure(self) -> BaseException | None:
        """The error of the task that failed first; None: none has failed."""
        return self._failure

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called, after which no task can be started."""
        return self._stopping

    def start(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Run a coroutine as a background task, and return the task. If it raises, `wait` and `stop` raise the error.

        Args:
            work: The coroutine.
            name: Name of the task in log entries.

        Raises:
            RuntimeError: The service is stopping.
        """
        if self._stopping:
            work.close()
            raise RuntimeError(f"{self._name}: task {name} cannot start: the service stops")
        task = asyncio.get_running_loop().create_task(work, name=f"{self._name}.{name}")
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    async def wait(self, stop: asyncio.Event) -> None:
        """Wait until `stop` is set, or raise the error of a task as soon as one fails."""
        waits = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(self._failed.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._raise()

    async def stop(self) -> None:
        """Cancel the tasks one by one, newest first, and await each; then raise the error of the task that failed first, if any.

        Safe to call twice.
        """
        self._stopping = True
        for task in reversed(list(self._tasks)):
            task.cancel()
            await asyncio.wait([task])
        # The done callbacks of the tasks run in the next iteration of the event loop.
        await asyncio.sleep(0)
        self._raise()

    async def __aenter__(self) -> Self:
        """Return this object."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop the tasks. Raise the error of the task that failed first, unless the context raised an error, which propagates."""
        try:
            await self.stop()
        except BaseException as failure:
            if error is None or failure is error:
                raise

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        message = explained(error)
        if message and isinstance(error, HopyardError):  # `wait` raises the error, and its caller logs it.
            _log.debug("background task %s failed: %s", task.get_name(), message)
        elif message:
            _log.critical("background task %s failed: %s", task.get_name(), message)
        else:
            _log.critical("background task %s failed", task.get_name(), exc_info=error)
        if self._failure is None:
            self._failure = error
            self._failed.set()
