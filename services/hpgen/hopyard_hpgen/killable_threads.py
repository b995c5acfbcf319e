"""Somebody else's code on threads that can be given up, so that a plugin that takes too long holds up nobody else.

Python cannot end a thread. One that is given up gets `GivenUp` raised where it is, which ends a loop in Python code; a call
that is blocked outside Python ends when it returns. Until then its thread stays, as a daemon: it keeps no process from ending.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

_log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_IDLE: Final = 8
"""Threads kept for the next work; those above it end."""

INSIST_SECONDS: Final = 1.0
INSIST_TIMES: Final = 10
"""Work that goes on after it was given up (it may have caught `GivenUp`) is told again, so often and so many times."""


SWITCH_SECONDS: Final = 0.0005
"""How long a thread may keep the interpreter while an event loop waits for work: a loop in Python would else slow all down."""


class GivenUp(BaseException):
    """Raised in a thread whose work nobody waits for any more. No `Exception`: handlers of plugins shall let it pass."""


class TooLong(TimeoutError):
    """Work did not end within its time, and was given up."""


class Work(Generic[T]):
    """A function under way on a thread. Its result, or what it raised, is there once it is `done`."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._lock = threading.Lock()
        self._ended = threading.Lock()
        self._ended.acquire()
        self._then: Callable[[], None] | None = None
        self._given_up = False
        self._result: T | None = None
        self._error: BaseException | None = None
        self.thread: threading.Thread | None = None
        self.done = False

    def wait(self, seconds: float) -> bool:
        """Blocks until the work is done, for so long at most (>= 0); answers whether it is. For one caller."""
        return self.done or self._ended.acquire(timeout=seconds)

    def result(self) -> T:
        """What the function returned; raises what it raised. Only of work that is done."""
        if not self.done:
            raise RuntimeError("the work is not done")
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value] # None is a T then

    def when_done(self, then: Callable[[], None]) -> None:
        """Calls once when the work is done: from its thread, or at once if it is done already. Never if it is given up."""
        with self._lock:
            if not self.done:
                self._then = then
                return
        then()

    def give_up(self) -> bool:
        """Nobody waits for the work any more: its thread is told to end. False if it is done: then the result holds."""
        with self._lock:
            if self.done:
                return False
            self._given_up = True
        self.insist()
        return True

    def insist(self) -> bool:
        """Raises `GivenUp` in the thread of work that was given up; False when the thread has ended."""
        if self.thread is None or not self.thread.is_alive():
            return False
        _raise_in(self.thread)
        return True

    def run(self, back: Callable[[], None]) -> bool:
        """On its thread: does the work. `back` is called before anybody is told. False: it was given up meanwhile."""
        try:
            self._result = self._function()
        except BaseException as error:  # noqa: BLE001 - whoever asks for the result gets it
            if self._given_up:
                return False
            self._error = error
        with self._lock:
            if self._given_up:
                return False
            self.done = True
            then = self._then
        back()
        self._ended.release()
        if then is not None:
            then()
        return True


class Threads:
    """Daemon threads that work in turn: one that is idle takes the next work, so there are as many as work at once.

    Args:
        name: Begins the threads' names.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._idle: list[_Thread] = []

    def start(self, function: Callable[[], T]) -> Work[T]:
        """Starts work on an idle thread, or a new one."""
        work = Work(function)
        try:
            thread = self._idle.pop()
        except IndexError:
            thread = _Thread(self._name, self._idle)
        thread.take(work)
        return work

    async def finish(
        self,
        work: Work[T],
        seconds: float,
        doing: Callable[[], object] | None = None,
        stop: Callable[[object], bool] | None = None,
    ) -> T:
        """Waits for work without blocking the event loop; cancelled, it gives the work up.

        Time in which this process itself stood still is not counted.

        Args:
            work: What was started.
            seconds: How long it may take (> 0).
            doing: The step that the work is at, an object of its own; each step may take so long. None: all is one step.
            stop: Asked before the work is given up at a step; False: the step is over, it may go on.

        Returns:
            What the work returned; what it raised is raised.

        Raises:
            TooLong: It took longer, and was given up.
        """
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def tell() -> None:
            with suppress(RuntimeError):  # The loop may be closed by then.
                loop.call_soon_threadsafe(ended.set)

        work.when_done(tell)
        tick = min(seconds / 20, 0.5)
        step, spent, before = doing and doing(), 0.0, time.monotonic()
        _switching.begin()
        try:
            while not work.done:
                with suppress(TimeoutError):
                    async with asyncio.timeout(tick):
                        await ended.wait()
                now, at = time.monotonic(), doing and doing()
                spent = spent + min(now - before, 2 * tick) if at is step else 0.0
                step, before = at, now
                if spent >= seconds and (stop is None or stop(step)) and give_up(work):
                    raise TooLong(f"it took longer than {seconds:g} s")
        except asyncio.CancelledError:
            give_up(work)
            raise
        finally:
            _switching.end()
        return work.result()

    async def call(self, function: Callable[[], T], seconds: float) -> T:
        """Starts work and waits for it; see `finish`."""
        return await self.finish(self.start(function), seconds)

    def close(self) -> None:
        """Ends the idle threads."""
        while self._idle:
            self._idle.pop().take(None)


def give_up(work: Work[Any]) -> bool:
    """Gives work up, and tells its thread again while it goes on. False if it is done. Use it from an event loop."""
    if not work.give_up():
        return False
    loop = asyncio.get_running_loop()

    def again(times: int) -> None:
        if work.thread is None or not work.thread.is_alive():
            return
        if times == 0:
            _log.warning("thread %s goes on though its work was given up; it ends with this process", work.thread.name)
            return
        work.insist()
        loop.call_later(INSIST_SECONDS, again, times - 1)

    loop.call_later(INSIST_SECONDS, again, INSIST_TIMES)
    return True


class _Switching:
    """Lets threads take turns faster while somebody waits."""

    def __init__(self) -> None:
        self._waiting = 0
        self._before = 0.0

    def begin(self) -> None:
        self._waiting += 1
        if self._waiting == 1:
            self._before = sys.getswitchinterval()
            sys.setswitchinterval(min(self._before, SWITCH_SECONDS))

    def end(self) -> None:
        self._waiting -= 1
        if self._waiting == 0:
            sys.setswitchinterval(self._before)


_switching = _Switching()


class _Thread:
    """One thread, and the work that it is given."""

    def __init__(self, name: str, idle: list[_Thread]) -> None:
        self._idle = idle
        self._work: Work[Any] | None = None
        self._ready = threading.Lock()
        self._ready.acquire()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def take(self, work: Work[Any] | None) -> None:
        """Gives it its next work; None: it ends."""
        self._work = work
        if work is not None:
            work.thread = self._thread
        self._ready.release()

    def _run(self) -> None:
        with suppress(GivenUp):  # It may come late, when the work is just over.
            while True:
                self._ready.acquire()
                work, self._work = self._work, None
                if work is None or not work.run(self._back):
                    return
                if len(self._idle) > MAX_IDLE and self in self._idle:
                    with suppress(ValueError):  # Somebody may have taken it just now.
                        self._idle.remove(self)
                        return

    def _back(self) -> None:
        self._idle.append(self)


def _raise_in(thread: threading.Thread) -> None:
    assert thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(GivenUp))
