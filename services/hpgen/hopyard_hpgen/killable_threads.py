"""Runs code of plugins on threads whose work can be abandoned, so that a plugin that takes too long does not block the service.

Python cannot kill a thread. When work is abandoned, `GivenUp` is raised in its thread: this ends a loop of Python code at once, but a
call that is blocked outside Python ends only when it returns. Until then the thread remains. It is a daemon, so it does not keep the
process from exiting.
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
"""Maximum number of idle threads to retain for later work; further ones end."""

INSIST_SECONDS: Final = 1.0
INSIST_TIMES: Final = 10
"""Abandoned work may catch `GivenUp` and continue: raise it again every INSIST_SECONDS, at most INSIST_TIMES times."""

SWITCH_SECONDS: Final = 0.0005
"""Interpreter switch interval in seconds while an event loop waits for work, so that busy plugin threads do not slow down the loop."""


class GivenUp(BaseException):
    """Raised in a thread to end its abandoned work. It is not an `Exception`, so that plugins' `except Exception` does not catch it."""


class WorkTimeout(TimeoutError):
    """Raised when work exceeded its time limit and was abandoned."""


class Work(Generic[T]):
    """A function call on a thread. When `done` is True, `result` returns what the function returned, or raises what it raised."""

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
        """Block until the work is done or `seconds` (>= 0) have passed; return whether it is done. At most one caller may wait."""
        return self.done or self._ended.acquire(timeout=seconds)

    def result(self) -> T:
        """Return what the function returned, or raise what it raised.

        Raises:
            RuntimeError: The work is not done, or was abandoned.
        """
        if not self.done:
            raise RuntimeError("the work is not done")
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value] # None is a T then

    def when_done(self, then: Callable[[], None]) -> None:
        """Call `then` once when the work is done, on the work's thread; at once if it is done already. Never if it is abandoned."""
        with self._lock:
            if not self.done:
                self._then = then
                return
        then()

    def give_up(self) -> bool:
        """Abandon the work: drop its result and raise `GivenUp` in its thread. Return whether it was abandoned; False: it is done."""
        with self._lock:
            if self.done:
                return False
            self._given_up = True
        self.insist()
        return True

    def insist(self) -> bool:
        """Raise `GivenUp` again in the thread of abandoned work. Call it only after `give_up`.

        Returns:
            True if the thread is alive. False if it has ended or was never started; nothing is raised then.
        """
        if self.thread is None or not self.thread.is_alive():
            return False
        _raise_in(self.thread)
        return True

    def run(self, back: Callable[[], None]) -> bool:
        """Do the work; called on its thread.

        Args:
            back: Returns the thread to its pool. Called when the work is done, before waiting callers are notified; not called if the
                work was abandoned.

        Returns:
            True if the work is done. False if it was abandoned meanwhile; its thread must then end.
        """
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
    """A pool of daemon threads without a size limit: new work gets an idle thread, or a new thread if none is idle.

    Args:
        name: Prefix of the threads' names.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._idle: list[_Thread] = []

    def start(self, function: Callable[[], T]) -> Work[T]:
        """Start to run a function on an idle thread, or on a new one if none is idle."""
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
        """Wait for work without blocking the event loop, and return its result or raise its error. If cancelled, abandon the work.

        The time limit does not include time in which this whole process was suspended.

        Args:
            work: The work, as returned by `start`.
            seconds: Time limit in seconds for each step of the work (> 0).
            doing: Returns an object that identifies the current step of the work; a new object begins a new step. None: the work is one
                step.
            stop: Called with the current step when it has exceeded the time limit. If it returns True, the work is abandoned. If it
                returns False, the work continues, and `stop` is called again after a pause. None: the work is abandoned.

        Raises:
            WorkTimeout: A step exceeded the time limit, and the work was abandoned.
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
                    raise WorkTimeout(f"it took longer than {seconds:g} s")
        except asyncio.CancelledError:
            give_up(work)
            raise
        finally:
            _switching.end()
        return work.result()

    async def call(self, function: Callable[[], T], seconds: float) -> T:
        """Run a function on a thread, and return its result. Raise `WorkTimeout` if it takes longer than `seconds`; see `finish`."""
        return await self.finish(self.start(function), seconds)

    def close(self) -> None:
        """End the idle threads. Threads with running work are not affected."""
        while self._idle:
            self._idle.pop().take(None)


def give_up(work: Work[Any]) -> bool:
    """Abandon work: drop its result and raise `GivenUp` in its thread.

    While the thread is alive, `GivenUp` is raised again every `INSIST_SECONDS`, at most `INSIST_TIMES` times. Call this function in an
    event loop; it does not wait.

    Returns:
        Whether the work was abandoned. False: it was done already.
    """
    if not work.give_up():
        return False
    loop = asyncio.get_running_loop()

    def again(times: int) -> None:
        if work.thread is None or not work.thread.is_alive():
            return
        if times == 0:
            _log.warning(
                "thread %s is still running after its work was abandoned; it ends with this process", work.thread.name
            )
            return
        work.insist()
        loop.call_later(INSIST_SECONDS, again, times - 1)

    loop.call_later(INSIST_SECONDS, again, INSIST_TIMES)
    return True


class _Switching:
    """Shortens the interpreter's thread switch interval to `SWITCH_SECONDS` while at least one caller waits for work.

    A caller calls `begin` before it waits, and `end` afterwards. The last `end` restores the previous interval.
    """

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
    """A thread of the pool, which runs one piece of work after another and is idle in between.

    Args:
        name: Name of the thread.
        idle: The list of the pool's idle threads, to which the thread adds itself after each piece of work.
    """

    def __init__(self, name: str, idle: list[_Thread]) -> None:
        self._idle = idle
        self._work: Work[Any] | None = None
        self._ready = threading.Lock()
        self._ready.acquire()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def take(self, work: Work[Any] | None) -> None:
        """Assign the next work to this idle thread; None: the thread ends."""
        self._work = work
        if work is not None:
            work.thread = self._thread
        self._ready.release()

    def _run(self) -> None:
        with suppress(GivenUp):  # It may be raised late, when the work has just ended.
            while True:
                self._ready.acquire()
                work, self._work = self._work, None
                if work is None or not work.run(self._back):
                    return
                if len(self._idle) > MAX_IDLE and self in self._idle:
                    with suppress(ValueError):  # `Threads.start` may have removed it just now.
                        self._idle.remove(self)
                        return

    def _back(self) -> None:
        self._idle.append(self)


def _raise_in(thread: threading.Thread) -> None:
    assert thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(GivenUp))
