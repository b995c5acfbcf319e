"""Policy processes that the scheduler starts from an experiment's command, in its code, and starts again when they end.

A process leads a group of its own. When it has ended, whatever the reason, so does what it has started and left there.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from hopyard._runtime.bundle import BundleError, unpack
from hopyard.errors import InvalidInput
from hopyard_scheduler.policy_process import die_with_parent
from hopyard_scheduler.policy_process.streams import Desk, Seat

_LOG = logging.getLogger(__name__)

SERVER_VARIABLE: Final = "HOPYARD_SERVER"
POLICY_VARIABLE: Final = "HOPYARD_POLICY"

GRACE_SECONDS: Final = 3.0
"""What a process has from SIGTERM to its end."""

PAUSE_SECONDS: Final = 0.2
"""Between the end of a process that never dialled in and the next try."""

MOST_TRIES: Final = 3
"""Processes in a row that may end without having dialled in."""

_LAST_BYTES: Final = 2_000


class SpawnedPolicy:
    """One experiment's policy process, started when it is needed.

    Args:
        command: The program and its arguments.
        code: Fetches the experiment's code bundle, packed; None: it has none.
        bundle: The bundle's hash.
        desk: Where the process dials in.
        address: The scheduler's own address, once it listens.
    """

    def __init__(
        self,
        command: Sequence[str],
        code: Callable[[], Awaitable[bytes]] | None,
        bundle: str,
        desk: Desk,
        address: Callable[[], str],
    ) -> None:
        self._command = tuple(command)
        self._code = code
        self._bundle = bundle
        self._desk = desk
        self._address = address
        self._key = f"started-{secrets.token_hex(8)}"
        self._folder: Path | None = None
        self._output: IO[bytes] | None = None
        self._process: tuple[asyncio.subprocess.Process, asyncio.Task[None]] | None = None
        """And what is done when its group has ended."""
        self._turn = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """The process that runs; None: none does."""
        return None if self._process is None or self._process[1].done() else self._process[0].pid

    @property
    def absent(self) -> str:
        """What to say when nobody comes."""
        return f"the command {' '.join(self._command)} has not dialled in{self._said()}"

    async def take(self, experiment: str) -> Seat:
        """A stream of the process, started if it does not run. Waits for it.

        Raises:
            InvalidInput: It cannot be started, or ended again and again without having dialled in.
        """
        async with self._turn:
            last = ""
            for _ in range(MOST_TRIES):
                process, ends = await self._running()
                sits = asyncio.create_task(self._desk.take(self._key, experiment))
                seat: Seat | None = None
                try:
                    await asyncio.wait({sits, ends}, return_when=asyncio.FIRST_COMPLETED)
                    if sits.done():
                        return (seat := sits.result())
                finally:
                    sits.cancel()
                    (taken,) = await asyncio.gather(sits, return_exceptions=True)
                    if seat is None and isinstance(taken, Seat):  # It dialled in just as nobody waited any more.
                        self.give_back(taken)
                last = f"{self._ended(process.returncode)}{self._said()}"
                _LOG.warning("%s", last)
                await asyncio.sleep(PAUSE_SECONDS)
            raise InvalidInput(last)

    def give_back(self, seat: Seat) -> None:
        """The stream was not for an experiment, and waits again."""
        if not seat.gone:
            self._desk.sit(seat)

    async def restart(self) -> None:
        """Ends the process, which hangs: the next one is another."""
        await self._stop()

    async def close(self) -> None:
        """Ends the process, and takes its files away. Safe twice."""
        await self._stop()
        if self._output is not None:
            self._output.close()
            self._output = None
        if self._folder is not None:
            folder, self._folder = self._folder, None
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _running(self) -> tuple[asyncio.subprocess.Process, asyncio.Task[None]]:
        if self._process is not None and not self._process[1].done():
            return self._process
        folder = await self._prepared()
        if self._output is None:
            self._output = (folder / "output.log").open("ab")
        here = str(Path(sys.executable).parent)
        inherited = {name: value for name, value in os.environ.items() if name != "HOPYARD_DATA"}
        environment = inherited | {
            SERVER_VARIABLE: self._address(),
            POLICY_VARIABLE: self._key,
            "PATH": f"{here}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-S",
            die_with_parent.__file__,
            str(os.getpid()),
            *self._command,
            cwd=folder / "code",
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
        )
        _LOG.info("started %s as process %d", " ".join(self._command), process.pid)
        self._process = process, asyncio.create_task(_end_of(process), name=f"group {process.pid}")
        return self._process

    async def _prepared(self) -> Path:
        """The folder with the experiment's code in `code`.

        Raises:
            InvalidInput: The bundle cannot be unpacked.
        """
        if self._folder is not None:
            return self._folder
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="hopyard-policy-"))
        try:
            if self._code is None:
                (folder / "code").mkdir()
            else:
                packed = folder / "bundle"
                packed.write_bytes(await self._code())
                await asyncio.to_thread(unpack, packed, folder / "code", self._bundle)
                packed.unlink()
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, BundleError):
                raise InvalidInput(f"bundle: {error}") from error
            raise
        self._folder = folder
        return folder

    async def _stop(self) -> None:
        running, self._process = self._process, None
        if running is None:
            return
        process, ends = running
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not ends.done():
                _signal(process, number)
                await asyncio.wait({ends}, timeout=GRACE_SECONDS)

    def _ended(self, code: int | None) -> str:
        return f"the command {' '.join(self._command)} ended with {code} before it dialled in"

    def _said(self) -> str:
        """The last line that it printed."""
        if self._folder is None:
            return ""
        try:
            with (self._folder / "output.log").open("rb") as file:
                file.seek(max(file.seek(0, os.SEEK_END) - _LAST_BYTES, 0))
                lines = file.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return f"; it said: {lines[-1].strip()}" if lines else ""


async def _end_of(process: asyncio.subprocess.Process) -> None:
    """Waits until a process has ended, and ends its group at once: later the number may be another's."""
    await process.wait()
    _signal(process, signal.SIGKILL)


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
