"""Policy processes that the scheduler starts in the folder of an experiment's code and restarts when they end.

Each process leads its own process session. When the process ends, everything that it has started is killed. A process that exceeds the
limits of its memory and of the number of its processes is killed, too.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, Protocol, TypeVar

from hopyard._common.environment import without_own
from hopyard._common.private_files import inherited_umask
from hopyard._runtime.bundle import BundleError, recorded_files, unpack
from hopyard._runtime.processes.process_family import MARK, ProcessFamily
from hopyard._runtime.processes.process_limits import LOOK_SECONDS, ResourceLimits, end_first
from hopyard._runtime.untrusted.unpacked_bundle import UnpackedBundle, listed
from hopyard.errors import HopyardError, InvalidInput, os_error_text
from hopyard.policy.vocabulary import StreamId
from hopyard_scheduler.policy_process.connections import PolicyConnection
from hopyard_scheduler.policy_process.folders import PolicyFolders

_LOG = logging.getLogger(__name__)

GRACE_SECONDS: Final = 3.0
"""Seconds between SIGTERM and SIGKILL."""

PAUSE_SECONDS: Final = 0.2
"""Seconds between the early end of a process and the next attempt."""

MOST_TRIES: Final = 3
"""Maximum number of consecutive processes that end before they are ready."""

MOST_OUTPUT_BYTES: Final = 16 << 20
"""Maximum size of the output file of a process. A larger file is emptied: messages show only its last line."""

_LAST_BYTES: Final = 2_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Invocation:
    """How to start a process.

    Attributes:
        arguments: The program and its arguments.
        environment: Environment variables in addition to the scheduler's, of which those that begin with HOPYARD_ are omitted.
        sockets: File descriptors that the process inherits.
    """

    arguments: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    sockets: tuple[int, ...] = ()


class ProcessLauncher(Protocol):
    """Defines how a kind of policy process is started and how its connection to the scheduler is found."""

    @property
    def label(self) -> str:
        """A name of the process for messages to people."""

    @property
    def ready(self) -> str:
        """What the process does to connect, for the error text "... has not started", such as "started" or "dialled in"."""

    async def begin(self, code: Path) -> Invocation:
        """Prepare the start of a process and return how to start it.

        Args:
            code: The folder of the experiment's code, which is the working folder of the process.
        """

    def started(self) -> None:
        """Close the scheduler's copies of what the process inherits. Called after each attempt to start the process."""

    async def accept(self, stream: StreamId) -> PolicyConnection:
        """Wait for the connection of the process and return it. There is no time limit: the caller cancels the wait.

        Args:
            stream: The stream that the process is to serve; empty: it is only asked whether it accepts a new experiment.
        """

    def give_back(self, connection: PolicyConnection) -> None:
        """Make a connection that is no longer in use available to the next call of `accept`."""

    def close(self) -> None:
        """Revoke what the last process was given. Called when no further process will be started."""

    @property
    def broken(self) -> bool:
        """True if the last process cannot provide another connection, so that `accept` needs a new process."""


class SpawnedPolicy:
    """Starts the policy process of one experiment on demand. Implements `ProcessSource`.

    Args:
        launcher: Defines how the process is started and how its connection is found.
        code: Fetches the packed code bundle; None: the experiment has no code.
        bundle: The hash of the bundle; empty: the experiment has no code.
        folders: Creates the folder for the files of the process.
        limits: The limits of the memory and of the number of processes.
    """

    def __init__(
        self,
        launcher: ProcessLauncher,
        code: Callable[[], Awaitable[bytes]] | None,
        bundle: str,
        folders: PolicyFolders,
        limits: ResourceLimits | None = None,
    ) -> None:
        self._launcher = launcher
        self._code = code
        self._bundle = bundle
        self._unpacked: UnpackedBundle | None = None
        self._folders = folders
        self._limits = limits or ResourceLimits()
        self._excess = ""
        """The limit that the last process exceeded; empty: none."""
        self._folder: Path | None = None
        self._output: IO[bytes] | None = None
        self._process: tuple[asyncio.subprocess.Process, asyncio.Task[None]] | None = None
        """The process, and the task that ends with its group."""
        self._turn = asyncio.Lock()
        self._closed = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The id of the running process; None: none is running."""
        return None if self._process is None or self._process[1].done() else self._process[0].pid

    @property
    def absent(self) -> str:
        """An error text for the case that the process does not connect in time. It has the last line of its output."""
        return f"{self._launcher.label} has not {self._launcher.ready}{self._said()}"

    @property
    def last_output(self) -> str:
        """The last line of the output of the process and of its predecessors, or the limit that it exceeded; empty: neither."""
        if self._excess:
            return self._excess
        if self._folder is None:
            return ""
        try:
            with (self._folder / "output.log").open("rb") as file:
                file.seek(max(file.seek(0, os.SEEK_END) - _LAST_BYTES, 0))
                lines = file.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1].strip() if lines else ""

    async def take(self, stream: StreamId) -> PolicyConnection:
        """Return a connection of the process. The process is started if it is not running.

        Args:
            stream: The stream that the process is to serve; empty: it is only asked whether it accepts a new
                experiment.

        Raises:
            InvalidInput: The process cannot be started, or ended `MOST_TRIES` times before it connected, or `close` was
                called.
        """
        async with self._turn:
            last = ""
            for _ in range(MOST_TRIES):
                try:
                    process, ends = await self._running()
                except HopyardError:
                    raise
                except OSError as error:
                    raise InvalidInput(f"{self._launcher.label} cannot be started: {os_error_text(error)}") from error
                accepting = asyncio.create_task(self._launcher.accept(stream))
                connection: PolicyConnection | None = None
                try:
                    await asyncio.wait({accepting, ends}, return_when=asyncio.FIRST_COMPLETED)
                    if accepting.done():
                        return (connection := accepting.result())
                finally:
                    accepting.cancel()
                    (taken,) = await asyncio.gather(accepting, return_exceptions=True)
                    if connection is None and isinstance(
                        taken, PolicyConnection
                    ):  # It connected at the moment of the cancellation.
                        self.give_back(taken)
                if self._closed.is_set():
                    raise _closed()
                last = f"{self._ended(process.returncode)}{self._said()}"
                _LOG.warning("%s", last)
                await self._unless_closed(asyncio.sleep(PAUSE_SECONDS))
            raise InvalidInput(last)

    def give_back(self, connection: PolicyConnection) -> None:
        """Make a connection that is no longer in use available to the next call of `take`."""
        if not connection.closed:
            self._launcher.give_back(connection)

    async def restart(self) -> None:
        """End the process, because it does not answer. The next `take` starts another one. No effect if none is running."""
        await self._stop()

    async def close(self) -> None:
        """End the process, delete its files, and refuse further starts. May be called more than once."""
        self._closed.set()
        await self._stop()
        async with self._turn:  # No other task can be about to start a process any more.
            await self._stop()
            self._launcher.close()
            await self._discard()

    async def _discard(self) -> None:
        """Delete the files of the process."""
        if self._output is not None:
            self._output.close()
            self._output = None
        if self._folder is not None:
            folder, self._folder = self._folder, None
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _running(self) -> tuple[asyncio.subprocess.Process, asyncio.Task[None]]:
        if self._process is not None and self._launcher.broken:
            await self._stop()
        if self._process is not None and not self._process[1].done():
            return self._process
        folder = await self._prepared()
        if self._output is None:
            self._output = (folder / "output.log").open("ab")
        here = str(Path(sys.executable).parent)
        mark = uuid.uuid4().hex
        path = {"PATH": f"{here}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
        try:
            invocation = await self._unless_closed(self._launcher.begin(folder / "code"))
            process = await asyncio.create_subprocess_exec(
                *invocation.arguments,
                cwd=folder / "code",
                env=without_own(os.environ) | path | invocation.environment | {MARK: mark},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                start_new_session=True,
                pass_fds=invocation.sockets,
                umask=inherited_umask(),
            )
        finally:
            self._launcher.started()
        _LOG.info("started %s as process %d", self._launcher.label, process.pid)
        self._excess = ""
        end_first(process.pid)
        ends = self._end_of(process, ProcessFamily(process.pid, mark), folder / "output.log")
        self._process = process, asyncio.create_task(ends, name=f"group {process.pid}")
        if self._closed.is_set():
            await self._stop()
            raise _closed()
        return self._process

    async def _end_of(self, process: asyncio.subprocess.Process, family: ProcessFamily, output: Path) -> None:
        """Wait until a process ends, and kill it if it exceeds a limit; then kill all that it has started.

        Args:
            process: The process.
            family: The process with all that it starts.
            output: Its output file, which is emptied when it is too large.
        """
        ended = asyncio.ensure_future(process.wait())
        while not (await asyncio.wait({ended}, timeout=LOOK_SECONDS))[0]:
            _empty_if_large(output)
            if excess := await asyncio.to_thread(self._limits.excess, process.pid):
                self._excess = excess
                _LOG.warning("%s is ended: %s", self._launcher.label, excess)
                await asyncio.to_thread(family.kill)
                await ended
        _signal(process, signal.SIGKILL)
        await asyncio.to_thread(family.end, GRACE_SECONDS)

    async def _prepared(self) -> Path:
        """Return the folder of the process. On first use, create it and unpack the code into its subfolder `code`.

        Before a further start, the code is compared with its bundle. If it differs, the folder is replaced by a new one.

        Raises:
            InvalidInput: The bundle cannot be unpacked, or `close` was called.
        """
        if self._closed.is_set():
            raise _closed()
        if self._folder is not None:
            if await _to_its_end(asyncio.to_thread(self._is_intact, self._folder / "code")):
                return self._folder
            await self._discard()
        folder = self._folders.make()
        try:
            if self._code is None:
                (folder / "code").mkdir()
            else:
                packed = folder / "bundle"
                content = await self._unless_closed(self._code())
                await _to_its_end(asyncio.to_thread(packed.write_bytes, content))
                await _to_its_end(asyncio.to_thread(unpack, packed, folder / "code", self._bundle))
                files = await _to_its_end(asyncio.to_thread(recorded_files, packed, self._bundle))
                self._unpacked = UnpackedBundle(folder / "code", self._bundle, files)
                packed.unlink()
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, BundleError):
                raise InvalidInput(f"bundle: {error}") from error
            raise
        self._folder = folder
        return folder

    def _is_intact(self, code: Path) -> bool:
        """Return whether the code of the process is as it was unpacked. It is not if the process has removed its own files."""
        if self._unpacked is None or not code.is_dir():
            return code.is_dir()
        found = self._unpacked.differences()
        if found:
            _LOG.warning("the code of %s was damaged and is unpacked again: %s", self._launcher.label, listed(found))
        return not found

    async def _unless_closed(self, what: Awaitable[T]) -> T:
        """Wait for the awaitable `what` and return its result.

        Raises:
            InvalidInput: `close` was called before or during the wait; the awaitable is cancelled.
        """
        doing, closes = asyncio.ensure_future(what), asyncio.create_task(self._closed.wait())
        try:
            await asyncio.wait({doing, closes}, return_when=asyncio.FIRST_COMPLETED)
            if self._closed.is_set():
                raise _closed()
            return doing.result()
        finally:
            doing.cancel()
            closes.cancel()
            await asyncio.gather(doing, closes, return_exceptions=True)

    async def _stop(self) -> None:
        running = self._process
        if running is None:
            return
        process, ends = running
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not ends.done():
                _signal(process, number)
                await asyncio.wait({ends}, timeout=GRACE_SECONDS)
        if self._process is running:
            self._process = None

    def _ended(self, code: int | None) -> str:
        return f"{self._launcher.label} ended with {code} before it {self._launcher.ready}"

    def _said(self) -> str:
        """Return the last line of the process's output, as the end of a message; empty: there is no output."""
        return f"; it said: {said}" if (said := self.last_output) else ""


def _closed() -> InvalidInput:
    return InvalidInput("its experiment needs no process any more")


async def _to_its_end(what: Awaitable[T]) -> T:
    """Wait for the awaitable `what` and return its result.

    If the caller is cancelled, it still waits until the awaitable has ended before it raises CancelledError.
    """
    doing = asyncio.ensure_future(what)
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.gather(doing, return_exceptions=True)
        raise


def _empty_if_large(output: Path) -> None:
    """Empty a file that is larger than `MOST_OUTPUT_BYTES`. It is open for appending, so the next output is at its beginning."""
    with suppress(OSError):
        if output.stat().st_size > MOST_OUTPUT_BYTES:
            os.truncate(output, 0)


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
