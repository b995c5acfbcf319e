"""Runs coroutines on an event loop in a background thread, for callers without an event loop.

All `LoopThread` objects of a process share one event loop: gRPC wakes every event loop in the process for each
response, and a loop for which the response is not intended logs an error.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from hopyard._net.rpc.fork_guard import forked

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for threads without an event loop, on the event loop in the background thread of this process.

    The first coroutine starts the thread. `close` cancels the coroutines of the object and releases the thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shared: _Shared | None = None
        self._running: set[Future[Any]] = set()

    @property
    def inherited(self) -> bool:
        """Whether this process was forked after the object had started its thread. The thread runs only in the parent process."""
        return self._shared is not None and self._shared.process != os.getpid()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return its result. If the calling thread is interrupted, the coroutine is cancelled.

        Errors of the coroutine propagate.

        Raises:
            Conflict: The process was forked after the object had started its thread.
            RuntimeError: The caller runs on the background event loop, which it would block.
        """
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine in the background, and return a future of its result. Cancelling the future cancels the coroutine.

        Raises:
            Conflict: The process was forked after the object had started its thread.
            RuntimeError: The caller runs on the background event loop: waiting there for the future would block the loop.
        """
        with self._lock:
            if self._shared is not None and self.inherited:
                work.close()
                raise forked(self._shared.process)
            if self._shared is None:
                self._shared = _take()
            shared = self._shared
            if threading.current_thread() is shared.thread:
                work.close()
                raise RuntimeError("called from the client's own event loop; use AsyncClient in asyncio code")
            future = asyncio.run_coroutine_threadsafe(work, shared.loop)
            self._running.add(future)
        future.add_done_callback(self._running.discard)
        return future

    def iterate(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        """Return an iterator over an asynchronous generator, which runs on the background event loop.

        The generator is closed when the iteration ends or the iterator is closed. Each step raises the errors of `run`.
        """
        try:
            while True:
                try:
                    yield self.run(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            self.run(items.aclose())

    def close(self) -> None:
        """Cancel the coroutines of this object. The last open object of the process ends the thread. Safe to call twice."""
        with self._lock:
            shared, self._shared = self._shared, None
            running = list(self._running)
        for future in running:
            future.cancel()
        if shared is not None:
            _give_back(shared)


class _Shared:
    """The event loop of the process with its thread, and the number of `LoopThread` objects that use it."""

    def __init__(self) -> None:
        self.users = 0
        self.process = os.getpid()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=_serve, args=(self.loop,), name="hopyard-client", daemon=True)
        self.thread.start()


_LOCK = threading.Lock()
_shared: _Shared | None = None


def _take() -> _Shared:
    global _shared
    with _LOCK:
        if _shared is None or _shared.process != os.getpid():  # A forked process does not inherit the parent's threads.
            _shared = _Shared()
        _shared.users += 1
        return _shared


def _give_back(shared: _Shared) -> None:
    global _shared
    with _LOCK:
        shared.users -= 1
        if shared.users or shared.process != os.getpid():
            return
        if _shared is shared:
            _shared = None
        shared.loop.call_soon_threadsafe(shared.loop.stop)
        shared.thread.join()


async def _next(items: AsyncGenerator[T, None]) -> T:
    return await anext(items)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
