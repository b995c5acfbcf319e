"""Long-lived tasks with an owner: named, awaited, and loud when they fail."""

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

    A task that raises fails the whole: `wait` and `stop` raise what it raised, so whoever runs the service ends it. A bug
    (what is no `HopyardError`) is logged at once, with the task's name and traceback. As a context manager it stops its
    tasks on leaving.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._failure: BaseException | None = None
        self._failed = asyncio.Event()
        self._stopping = False

    @property
    def failure(self) -> BaseException | None:
        """What the first failed task raised; None while all is well."""
        return self._failure

    @property
    def stopping(self) -> bool:
        """Whether no task can be started any more."""
        return self._stopping

    def start(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Start a task. It may end by itself; what it raises fails the whole."""
        if self._stopping:
            work.close()
            raise RuntimeError(f"{self._name}: task {name} cannot start: the service stops")
        task = asyncio.get_running_loop().create_task(work, name=f"{self._name}.{name}")
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    async def wait(self, stop: asyncio.Event) -> None:
        """Wait until `stop` is set, or raise as soon as a task fails."""
        waits = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(self._failed.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._raise()

    async def stop(self) -> None:
        """Cancel the tasks, the youngest first, each awaited before the next; then raise the first failure, if any.

        Safe to call twice.
        """
        self._stopping = True
        for task in reversed(list(self._tasks)):
            task.cancel()
            await asyncio.wait([task])
        # Callbacks of tasks that just ended run in the loop's next turn.
        await asyncio.sleep(0)
        self._raise()

    async def __aenter__(self) -> Self:
        """The group itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop the tasks; a failure among them does not hide the error that is under way."""
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
        if message and isinstance(error, HopyardError):  # It says what to do, and whoever waits here says it once.
            _log.debug("background task %s failed: %s", task.get_name(), message)
        elif message:
            _log.critical("background task %s failed: %s", task.get_name(), message)
        else:
            _log.critical("background task %s failed", task.get_name(), exc_info=error)
        if self._failure is None:
            self._failure = error
            self._failed.set()
