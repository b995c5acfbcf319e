"""The client of a worker process, which runs foreign code. Faults of the worker process do not affect the process that uses it.

Client and worker process exchange frames: four bytes of length, big-endian, then JSON (`hopyard._runtime.processes.worker_process`).
"""

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
from hopyard._runtime.processes.timeouts import TimeLimitExceeded, within
from hopyard.errors import InvalidInput

_MOST_SAID: Final = 1000

_MOST_OUTPUT_BYTES: Final = 16 << 20
"""Maximum size of the error output of a process. Larger output is deleted: messages show only its end."""

_END_SECONDS: Final = 3.0
"""Time limit in seconds for killed processes to disappear."""


class WorkerEnded(InvalidInput):
    """Raised if a worker process ended before it answered: it crashed, was killed, or exceeded a limit of its resources."""


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

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process has not ended. Its children may still have its output open when it has."""
        return self._process.returncode is None

    async def ask(self, wanted: Mapping[str, Any], seconds: float | None, over: str, while_: str) -> dict[str, Any]:
        """Send a request to the process and return its answer.

        Args:
            wanted: The request, as a JSON object.
            seconds: Time limit in seconds. After it is exceeded, the process must not be used any more. None: no limit.
            over: What took too long, appended to the error message "... took longer than 3 s", such as "to be made".
            while_: What the process did, appended to the error message "... was killed by signal 9", such as "while it
                was made".

        Raises:
            WorkerEnded: The process ended.
            InvalidInput: The process answered with an error, took too long, or sent an invalid answer.
        """
        answer = self._answer(wanted, while_)
        try:
            said = await (answer if seconds is None else within(seconds, answer))
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
                raise WorkerEnded(f"{self._who}: {self.excess}") from error
            how = f"ended with exit code {code}" if code >= 0 else f"was killed by signal {-code}"
            raise WorkerEnded(f"{self._who}: its process {how} {while_}{self._said()}") from error
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
        """Return the last line of the error output, as the end of a message; empty: there is none."""
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - _MOST_SAID))
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        return f"; it said: {printable(lines[-1].strip())}" if lines else ""


@asynccontextmanager
async def aside(
    module: str, who: str, *, priority: int, most_bytes: int, limits: ResourceLimits | None = None
) -> AsyncIterator[WorkerProcess]:
    """Run `python -m module` while the context is open, then kill it with all that it has started.

    It is also killed if it exceeds a limit of its resources. It ends with the thread that opens the context, which must therefore live
    as long as the context. The context value is a `WorkerProcess`, with which requests are sent to the process.

    Args:
        module: The module, which must use `hopyard._runtime.processes.worker_process`.
        who: The name of the process in error messages.
        priority: The nice value of the process.
        most_bytes: Maximum size of an answer in bytes; a larger answer is invalid.
        limits: The limits of its memory and of the number of its processes; None: the default ones.
    """
    mark = uuid.uuid4().hex
    with tempfile.TemporaryFile("a+b") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
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
        watch = _watch(worker, log, limits or ResourceLimits(), family)
        watching = asyncio.create_task(watch, name=f"limits of {who}")
        try:
            yield worker
        finally:
            watching.cancel()
            await asyncio.shield(asyncio.to_thread(family.kill))
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(asyncio.to_thread(family.end, _END_SECONDS))
            await asyncio.shield(_reap(process))


async def _reap(process: Process) -> None:
    """Wait until a killed process is gone and its output is read.

    `Process.wait` waits for the end of its output, which asyncio does not read beyond what was asked for.
    """
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_END_SECONDS):
            while await process.stdout.read(1 << 16):
                pass
            await process.wait()
    except TimeoutError:  # A process that has left the family keeps the output open.
        process._transport.close()  # type: ignore[attr-defined] # asyncio has no public method for it


async def _watch(worker: WorkerProcess, log: IO[bytes], limits: ResourceLimits, family: ProcessFamily) -> None:
    """Kill all processes of a family when its leader ends, or exceeds a limit. Return then.

    Args:
        worker: The leader.
        log: Its error output, which is emptied when it is too large.
        limits: The limits of its memory and of the number of its processes.
        family: The process with all that it starts.
    """
    excess = ""
    while worker.running and not (excess := await asyncio.to_thread(limits.excess, worker.pid)):
        if os.fstat(log.fileno()).st_size > _MOST_OUTPUT_BYTES:
            os.ftruncate(log.fileno(), 0)
        await asyncio.sleep(LOOK_SECONDS)
    worker.excess = excess
    if excess:
        await asyncio.to_thread(family.kill)
    # Children have its output open: those of an ended process, and those that started while it was killed.
    await asyncio.to_thread(family.end, _END_SECONDS)
