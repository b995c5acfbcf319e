"""Worker processes for foreign code. They exchange frames (length and JSON) with the scheduler, which their faults do not affect."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
import uuid
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import IO, Any, Final

from hopyard._common.bounded_json import read_json
from hopyard._common.environment import without_own
from hopyard._common.formatting import printable
from hopyard._common.private_files import inherited_umask
from hopyard._runtime.processes.process_family import MARK, ProcessFamily
from hopyard._runtime.processes.process_limits import LOOK_SECONDS, ResourceLimits
from hopyard.errors import InvalidInput
from hopyard_scheduler.policy_process.timeouts import TimeLimitExceeded, within

_MOST_SAID: Final = 1000
LIMITS: Final = ResourceLimits()
"""The limits of a worker process with its descendants."""

_END_SECONDS: Final = 3.0
"""Time limit in seconds for killed processes to disappear."""


class WorkerProcess:
    """A running worker process, created by `aside`. It answers one request after the other.

    Args:
        process: The process, whose program uses `hopyard._runtime.processes.worker_process`.
        who: The name of the process in error messages.
        log: The file that has its error output.
        most_bytes: Maximum size of an answer in bytes; a larger answer is invalid.
    """

    def __init__(self, process: Process, who: str, log: IO[bytes], most_bytes: int) -> None:
        self._process = process
        self._who = who
        self.excess = ""
        """The limit that the process has exceeded; empty: none."""
        self._log = log
        self._most_bytes = most_bytes

    async def ask(self, wanted: Mapping[str, Any], seconds: float, over: str, while_: str) -> dict[str, Any]:
        """Send a request to the process and return its answer.

        Args:
            wanted: The request, as a JSON object.
            seconds: Time limit in seconds. After it is exceeded, the process must not be used any more.
            over: What took too long, appended to the error message "... took longer than 3 s", such as "to be made".
            while_: What the process did, appended to the error message "... was killed by signal 9", such as "while it
                was made".

        Raises:
            InvalidInput: The process answered with an error, ended, took too long, or sent an invalid answer.
        """
        try:
            said = await within(seconds, self._answer(wanted, while_))
        except TimeLimitExceeded as error:
            raise InvalidInput(f"{self._who} took longer than {seconds:g} s {over}") from error
        if "error" in said:
            raise InvalidInput(str(said["error"]))
        return said

    async def _answer(self, wanted: Mapping[str, Any], while_: str) -> dict[str, Any]:
        try:
            return await self._exchange(wanted)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            code = await self._process.wait()  # The process may continue after it has closed its streams.
            if self.excess:
                raise InvalidInput(f"{self._who}: {self.excess}") from error
            how = f"ended with exit code {code}" if code >= 0 else f"was killed by signal {-code}"
            raise InvalidInput(f"{self._who}: its process {how} {while_}{self._said()}") from error
        except ValueError as error:
            raise InvalidInput(f"{self._who}: its process said what is no answer: {error}") from error

    async def _exchange(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        streams = self._process
        assert streams.stdin is not None
        assert streams.stdout is not None
        frame = json.dumps(wanted).encode()
        streams.stdin.write(len(frame).to_bytes(4, "big") + frame)
        await streams.stdin.drain()
        length = int.from_bytes(await streams.stdout.readexactly(4), "big")
        if length > self._most_bytes:
            raise ValueError(f"{length} bytes, at most {self._most_bytes} are allowed")
        found = read_json(await streams.stdout.readexactly(length))
        if not isinstance(found, dict):
            raise ValueError(f"found {found!r:.80}, where an object is needed")
        return found

    def _said(self) -> str:
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - _MOST_SAID))
        text = printable(self._log.read().decode("utf-8", "replace").strip())
        return f"; it said: {text}" if text else ""


@asynccontextmanager
async def aside(module: str, who: str, *, priority: int, most_bytes: int) -> AsyncIterator[WorkerProcess]:
    """Run `python -m module` while the context is open, then kill it with all that it has started.

    It is also killed if it exceeds the default `ResourceLimits`. The context value is a `WorkerProcess`, with which requests are
    sent to the process.

    Args:
        module: The module, which must use `hopyard._runtime.processes.worker_process`.
        who: The name of the process in error messages.
        priority: The nice value of the process.
        most_bytes: Maximum size of an answer in bytes; a larger answer is invalid.
    """
    mark = uuid.uuid4().hex
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            str(os.getpid()),
            "--priority",
            str(priority),
            stdin=PIPE,
            stdout=PIPE,
            stderr=log,
            env=without_own(os.environ) | {MARK: mark},
            start_new_session=True,
            umask=inherited_umask(),
        )
        family, worker = ProcessFamily(process.pid, mark), WorkerProcess(process, who, log, most_bytes)
        watching = asyncio.create_task(_watch(worker, process.pid, family), name=f"limits of {who}")
        try:
            yield worker
        finally:
            watching.cancel()
            family.kill()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())
            await asyncio.shield(asyncio.to_thread(family.end, _END_SECONDS))


async def _watch(worker: WorkerProcess, pid: int, family: ProcessFamily) -> None:
    """Kill a process when it exceeds the limits of its memory or of the number of its processes. Return then."""
    while not (excess := await asyncio.to_thread(LIMITS.excess, pid)):  # noqa: ASYNC110 (another process)
        await asyncio.sleep(LOOK_SECONDS)
    worker.excess = excess
    await asyncio.to_thread(family.kill)
