"""Predictor processes. Each runs one predictor at low priority and answers one question at a time.

A question is a request for a prediction, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import sys
import time
import uuid
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil

from hopyard._common.bounded_json import read_json
from hopyard._common.environment import passed_environment
from hopyard._common.private_files import inherited_umask, open_private
from hopyard._runtime.processes.process_family import MARK, ProcessFamily
from hopyard_nodeagent.runs.logs import log_reader
from hopyard_nodeagent.runs.memory import MemoryGuard, used_bytes
from hopyard_nodeagent.runs.orphan_processes import END_SECONDS

START_SECONDS: Final = 120.0
"""Time limit in seconds for starting a process and creating its predictor, which imports packages at the lowest priority."""

MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of an answer of a predictor in bytes. It fits into one message to the scheduler."""

_LEAVE_SECONDS: Final = 2.0

_TICK_SECONDS: Final = 0.5

_PATIENCE: Final = 20

Look = Callable[[], tuple[float, bool]]

_ONE_THREAD: Final = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
)


class PredictorFailed(Exception):
    """A predictor process could not be started, or could not answer a question; the message says why.

    The process has ended or was never started.
    """


@dataclass(frozen=True, slots=True)
class PredictorKey:
    """Identifies what a predictor process runs. Questions with equal keys may use the same process.

    Attributes:
        name: Name of the predictor, or `module:Class`.
        parameters_json: Parameters of the predictor, a JSON object.
        folder: Folder from which `module:Class` is imported; None: the predictor needs no code of the experiment.
        memory_bytes: Memory limit of the process and its children in bytes; 0: no limit.
    """

    name: str
    parameters_json: str
    folder: Path | None = None
    memory_bytes: int = 0


class TaskTime:
    """Measures the time that a process has spent on a task: computing, or waiting for anything but a CPU.

    At the lowest priority, a process may wait long for a CPU that training uses. That time is not measured. `more_than`
    therefore also limits the wall-clock time, to `_PATIENCE` times its argument.

    The measurement starts when the instance is created.

    Args:
        pid: Id of the process.
        clock: Returns monotonic seconds.
        look: Returns the CPU time of the process in seconds, and whether it is runnable; None: ask the operating system.
    """

    def __init__(self, pid: int, clock: Callable[[], float] = time.monotonic, look: Look | None = None) -> None:
        self._clock = clock
        self._look = look or partial(_look, pid)
        self._began = self._before = clock()
        self._used = self._look()[0]
        self._spent = 0.0

    def more_than(self, seconds: float) -> bool:
        """Return whether more than `seconds` were spent on the task, or more than `_PATIENCE * seconds` have passed, since the start.

        Call it often: it samples whether the process computes or waits.
        """
        now = self._clock()
        used, wants = self._look()
        self._spent += used - self._used if wants else now - self._before
        self._used, self._before = used, now
        return self._spent > seconds or now - self._began > _PATIENCE * seconds


def _look(pid: int) -> tuple[float, bool]:
    try:
        process = psutil.Process(pid)
        times = process.cpu_times()
        return times.user + times.system, process.status() == psutil.STATUS_RUNNING
    except psutil.Error:  # It has ended; reading its streams will show that.
        return 0.0, True


class PredictorProcess:
    """A process with one predictor. It ends when the agent ends.

    All processes that it has started end with it.

    Args:
        key: What the process runs.
        process: The operating system's process, which was just started.
        log: The file to which the process writes its output.
        over: Called with the process id when the process and its children have ended.
        mark: The mark of the process (`hopyard._runtime.processes.process_family`); empty: none.
    """

    def __init__(
        self, key: PredictorKey, process: Process, log: Path, over: Callable[[int], None], mark: str = ""
    ) -> None:
        self.key = key
        self._process = process
        self._log = log
        self._began = log_reader.size(log)
        self._over = over
        self._family = ProcessFamily(process.pid, mark)
        self._guard = MemoryGuard(
            process.pid,
            key.memory_bytes,
            setting="predictor.memory",
            check_seconds=_TICK_SECONDS,
            measure=self._measure,
        )
        self._measured = -math.inf
        self._exit = asyncio.create_task(self._wait_for_exit(), name=f"predictor {process.pid}")

    @property
    def usable(self) -> bool:
        """Whether the process is alive, so that it can answer questions."""
        return self._process.returncode is None

    async def make(self, seconds: float = START_SECONDS) -> None:
        """Make the process create its predictor.

        Args:
            seconds: Time limit (see `TaskTime`).

        Raises:
            PredictorFailed: The predictor could not be created; the process has ended.
        """
        wanted = {
            "name": self.key.name,
            "parameters": json.loads(self.key.parameters_json),
            "path": [str(self.key.folder)] if self.key.folder is not None else [],
        }
        said = await self._asked(json.dumps(wanted).encode(), seconds, "to be made", "reads")
        if "error" in said:
            await self.kill()
            raise PredictorFailed(str(said["error"]))

    async def ask(self, question: bytes, seconds: float) -> Mapping[str, Any]:
        """Send a question to the process, and return its answer: a dict with `result`, or with the `error` that the predictor raised.

        If the caller is cancelled, the process is killed. Call it again only when the call before has returned.

        Args:
            question: The question as JSON.
            seconds: Time limit (> 0; see `TaskTime`).

        Raises:
            PredictorFailed: The prediction took too long, the process ended, or its answer is invalid. In all cases the process has
                ended.
        """
        return await self._asked(question, seconds, "over one prediction", "result")

    async def kill(self) -> None:
        """Kill the process and its children; return when they have ended."""
        if self.usable:  # Otherwise its process id may belong to another process.
            self._family.kill()
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        await self._end_family()
        done, _ = await asyncio.wait({self._exit}, timeout=END_SECONDS)
        if not done:  # A process that has left the family keeps the output open.
            self._process._transport.close()  # type: ignore[attr-defined] # asyncio has no public method for it
            await asyncio.shield(self._exit)

    async def _end_family(self) -> None:
        """End all that the process has started. Children that have its output open would delay the end of `Process.wait`."""
        await asyncio.shield(asyncio.to_thread(self._family.end, END_SECONDS))

    async def _wait_for_exit(self) -> None:
        await self._process.wait()
        await self._end_family()
        self._over(self._process.pid)

    async def _asked(self, frame: bytes, seconds: float, over_what: str, field: str) -> Mapping[str, Any]:
        name = self.key.name
        exchange = asyncio.create_task(self._exchange(frame, field))
        watch = asyncio.create_task(self._watch()) if self.key.memory_bytes else None
        try:
            spent = TaskTime(self._process.pid)
            while not exchange.done() and not spent.more_than(seconds):
                await asyncio.wait({exchange}, timeout=min(seconds / 10, _TICK_SECONDS))
                if not exchange.done() and not self.usable:
                    await self._end_family()
            if not exchange.done():
                await self.kill()
                raise PredictorFailed(f"predictor {name} took longer than {seconds:g} s {over_what}")
            return exchange.result()
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            with suppress(TimeoutError):  # Wait for its exit code, which may tell the cause.
                async with asyncio.timeout(_LEAVE_SECONDS):
                    await self._process.wait()
            await self.kill()
            why = self._guard.excess or f"its process {self._end()}{self._said()}"
            raise PredictorFailed(f"predictor {name}: {why}") from error
        except ValueError as error:
            await self.kill()
            raise PredictorFailed(f"predictor {name}: its process said what is no answer: {error}") from error
        except asyncio.CancelledError:
            await self.kill()
            raise
        finally:
            ending = {task for task in (exchange, watch) if task is not None}
            for task in ending:
                task.cancel()
            await asyncio.wait(ending)

    async def _watch(self) -> None:
        """Watch the memory of the process while it answers a question, and kill it if it exceeds its memory limit.

        The caller cancels this coroutine when the question is answered. The first measurement is delayed, so that short questions are
        not slowed down by measuring.
        """
        await asyncio.sleep(self._measured + _TICK_SECONDS - time.monotonic())
        await self._guard.watch(self.kill)

    def _measure(self, pid: int, limit: int) -> int:
        self._measured = time.monotonic()
        return used_bytes(pid, limit)

    async def _exchange(self, frame: bytes, field: str) -> Mapping[str, Any]:
        streams = self._process
        assert streams.stdin is not None
        assert streams.stdout is not None
        streams.stdin.write(len(frame).to_bytes(4, "big") + frame)
        await streams.stdin.drain()
        length = int.from_bytes(await streams.stdout.readexactly(4), "big")
        if length > MAX_ANSWER_BYTES:
            raise ValueError(f"{length} bytes, at most {MAX_ANSWER_BYTES} are allowed")
        said = read_json(await streams.stdout.readexactly(length))
        if not isinstance(said, dict) or not said.keys() & {field, "error"}:
            raise ValueError(f"found {said!r:.80}, where an object with {field} or error is needed")
        return said

    def _end(self) -> str:
        code = self._process.returncode
        assert code is not None
        if code >= 0:
            return f"ended with exit code {code}"
        with suppress(ValueError):
            why = " (out of memory?)" if -code == signal.SIGKILL else ""
            return f"was killed by {signal.Signals(-code).name}{why}"
        return f"was killed by signal {-code}"

    def _said(self) -> str:
        text = log_reader.last_lines(self._log, self._began)
        return f"; it said:\n{text}" if text else ""


async def start_predictor(
    key: PredictorKey,
    log: Path,
    *,
    passed: Sequence[str] = (),
    started: Callable[[int, str], None],
    over: Callable[[int], None],
) -> PredictorProcess:
    """Start a predictor process with this agent's interpreter, in a new process session, with one thread and without GPUs.

    Args:
        key: What the process runs.
        log: File to which the output of the process is appended.
        passed: Patterns of names of environment variables that it gets from the agent, in addition to the usual ones.
        started: Called with the process id and the mark of the process when it has started.
        over: Called with the process id when the process and its children have ended.

    Raises:
        PredictorFailed: The process cannot be started.
    """
    handle = open_private(log, os.O_WRONLY | os.O_APPEND)
    environment = passed_environment(os.environ, passed)
    mark = uuid.uuid4().hex
    environment |= {**dict.fromkeys(_ONE_THREAD, "1"), "CUDA_VISIBLE_DEVICES": "", MARK: mark}
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "hopyard.predictor.process",
            str(os.getpid()),
            stdin=PIPE,
            stdout=PIPE,
            stderr=handle,
            env=environment,
            start_new_session=True,
            umask=inherited_umask(),
        )
    except OSError as error:
        raise PredictorFailed(f"predictor {key.name}: no process can be started: {error.strerror}") from error
    finally:
        os.close(handle)
    started(process.pid, mark)
    return PredictorProcess(key, process, log, over, mark)
