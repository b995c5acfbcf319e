"""Ctrl-C as two events: the first asks for an orderly end, the second for an end at once."""

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
    """Takes SIGINT and SIGTERM while it is entered, in the main thread's event loop.

    Attributes:
        first: Set by the first signal.
        second: Set by the second.
    """

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()

    def __enter__(self) -> Self:
        """Begin to take signals."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the signals back."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def interrupt(self) -> None:
        """What a signal does."""
        (self.second if self.first.is_set() else self.first).set()

    async def unless(self, event: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
        """Do `work`, unless `event` is set first: then it is cancelled.

        Raises:
            Interrupted: It was.
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
