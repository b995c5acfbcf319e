"""Handles SIGINT and SIGTERM as two events: the first signal requests an orderly end of a command, the second an immediate one."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from hopyard.cli.errors import Interrupted

T = TypeVar("T")

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """A context manager that handles SIGINT and SIGTERM on the running event loop of the main thread.

    Attributes:
        first: Set by the first signal, which requests an orderly end.
        second: Set by the second signal, which requests an immediate end.
    """

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()

    def __enter__(self) -> Self:
        """Install the signal handlers."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the signal handlers."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def interrupt(self) -> None:
        """Set `first`, or `second` if `first` is already set."""
        (self.second if self.first.is_set() else self.first).set()

    async def unless(self, event: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` and return its result. If `event` is set before that, cancel `work`.

        Raises:
            Interrupted: The event was set first.
        """
        task = asyncio.create_task(work, name="work")
        watch = asyncio.create_task(event.wait(), name="interrupt")
        try:
            await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise Interrupted
        finally:
            for one in (task, watch):
                one.cancel()
            await asyncio.gather(task, watch, return_exceptions=True)
