"""Handles what ends a command: signals, a closed terminal, and an output that nobody reads any more.

Each requests an orderly end. A second SIGINT or SIGTERM requests an immediate one.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from hopyard.cli.errors import EXIT_INTERRUPTED, EXIT_OUTPUT_CLOSED, Interrupted
from hopyard.cli.output import OutputGuard
from hopyard.client.local_cluster.hangup import EXIT_HANGUP

T = TypeVar("T")

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_CHECK_SECONDS: Final = 0.5


class Interrupts:
    """A context manager that handles SIGINT, SIGTERM, SIGHUP and a closed output on the running event loop of the main thread.

    SIGHUP stays ignored if it was ignored before, as by `nohup`. While the manager is open, writes to stdout and stderr do not fail
    because a terminal or a reader is gone (see `OutputGuard`), so such an error does not end an orderly end half way.

    Attributes:
        first: Set by the first event, which requests an orderly end.
        second: Set by the second SIGINT or SIGTERM, which requests an immediate end. SIGHUP and a closed output do not count: a closed
            terminal causes several of them, and Ctrl-C on `hopyard run ... | tee FILE` also closes the output.
        exit_code: The exit code of a command that the first event ended: 130 for SIGINT and SIGTERM, 129 for SIGHUP, 141 for a
            closed output.
    """

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self.exit_code = EXIT_INTERRUPTED
        self._signalled = False
        self._handled: tuple[signal.Signals, ...] = ()
        self._output = OutputGuard(self.close_output)
        self._check: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        """Install the signal handlers, and watch the output."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.interrupt)
        self._handled = _SIGNALS
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            loop.add_signal_handler(signal.SIGHUP, self.hang_up)
            self._handled += (signal.SIGHUP,)
        self._output.__enter__()
        self._check_output()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the signal handlers, and do not watch the output any more."""
        if self._check is not None:
            self._check.cancel()
        self._output.__exit__(kind, error, trace)
        loop = asyncio.get_running_loop()
        for number in self._handled:
            loop.remove_signal_handler(number)

    def interrupt(self) -> None:
        """Handle SIGINT or SIGTERM: set `first`, or `second` if this is the second such signal."""
        if self._signalled:
            self.second.set()
        self._signalled = True
        self._request(EXIT_INTERRUPTED)

    def hang_up(self) -> None:
        """Handle SIGHUP: set `first`."""
        self._request(EXIT_HANGUP)

    def close_output(self) -> None:
        """Handle that the reader of stdout or stderr is gone: set `first`."""
        self._request(EXIT_OUTPUT_CLOSED)

    @property
    def to_quit(self) -> str:
        """What the user must press for an immediate end, after the first event."""
        return "Ctrl-C again" if self._signalled else "Ctrl-C twice"

    @property
    def because(self) -> str:
        """Why the command ends, as the end of a message with a leading blank; empty after a signal that the user knows of."""
        return " because its output was closed" if self.exit_code == EXIT_OUTPUT_CLOSED else ""

    def _request(self, code: int) -> None:
        if not self.first.is_set():
            self.exit_code = code
            self.first.set()

    def _check_output(self) -> None:
        self._output.check()
        self._check = asyncio.get_running_loop().call_later(_CHECK_SECONDS, self._check_output)

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
