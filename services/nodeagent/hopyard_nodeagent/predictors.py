"""Processes that predict: each holds one predictor, and answers one question at a time beside training."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hopyard_nodeagent import logs

START_SECONDS: Final = 120.0
"""How long a process may take until its predictor is made: it imports its packages at the lowest priority."""

_LEAVE_SECONDS: Final = 2.0

_ONE_THREAD: Final = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
)


class PredictorFailed(Exception):
    """A question got no answer; the message says why, and the process may be gone."""


@dataclass(frozen=True, slots=True)
class PredictorKey:
    """What a process is for: questions with equal keys may share one.

    Attributes:
        name: the predictor's, or `module:Class`.
        parameters_json: its parameters, a JSON object.
        folder: where `module:Class` is looked for first; None: nowhere.
    """

    name: str
    parameters_json: str
    folder: Path | None = None


class PredictorProcess:
    """One process, which ends with this one."""

    def __init__(self, key: PredictorKey, process: Process, log: Path, over: Callable[[int], None]) -> None:
        """Take over a process that was just started and writes to `log`; `over` hears that it has ended."""
        self.key = key
        self._process = process
        self._log = log
        self._began = logs.size(log)
        self._over = over

    @property
    def usable(self) -> bool:
        """Whether it can be asked something."""
        return self._process.returncode is None

    async def make(self, seconds: float = START_SECONDS) -> None:
        """Have it make its predictor.

        Raises:
            PredictorFailed: it does not; the process is gone.
        """
        wanted = {
            "name": self.key.name,
            "parameters": json.loads(self.key.parameters_json),
            "path": [str(self.key.folder)] if self.key.folder is not None else [],
        }
        said = await self._asked(json.dumps(wanted).encode(), seconds, "to be made")
        if "error" in said:
            await self.kill()
            raise PredictorFailed(str(said["error"]))

    async def ask(self, question: bytes, seconds: float) -> Mapping[str, Any]:
        """Put a question; returns its `result`, or the `error` that the predictor raised.

        If this is cancelled the process is killed.

        Raises:
            PredictorFailed: it took longer than `seconds` (> 0), or the process ended; either way it is gone.
        """
        return await self._asked(question, seconds, "over one prediction")

    async def kill(self) -> None:
        """End it and its children at once; returns when it is gone."""
        if self.usable:  # Else its number may be another's by now.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        await asyncio.shield(self._process.wait())
        self._over(self._process.pid)

    async def _asked(self, frame: bytes, seconds: float, over_what: str) -> Mapping[str, Any]:
        name = self.key.name
        try:
            async with asyncio.timeout(seconds):
                return await self._exchange(frame)
        except TimeoutError as error:
            await self.kill()
            raise PredictorFailed(f"predictor {name} took longer than {seconds:g} s {over_what}") from error
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            with suppress(TimeoutError):  # It may be about to say with its exit code why.
                await asyncio.wait_for(self._process.wait(), _LEAVE_SECONDS)
            await self.kill()
            raise PredictorFailed(f"predictor {name}: its process {self._end()}{self._said()}") from error
        except ValueError as error:
            await self.kill()
            raise PredictorFailed(f"predictor {name}: its process said what is not JSON: {error}") from error
        except asyncio.CancelledError:
            await self.kill()
            raise

    async def _exchange(self, frame: bytes) -> Mapping[str, Any]:
        streams = self._process
        assert streams.stdin is not None
        assert streams.stdout is not None
        streams.stdin.write(len(frame).to_bytes(4, "big") + frame)
        await streams.stdin.drain()
        length = int.from_bytes(await streams.stdout.readexactly(4), "big")
        said: Mapping[str, Any] = json.loads(await streams.stdout.readexactly(length))
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
        text = logs.last_lines(self._log, self._began)
        return f"; it said:\n{text}" if text else ""


async def start_predictor(
    key: PredictorKey, log: Path, *, started: Callable[[int], None], over: Callable[[int], None]
) -> PredictorProcess:
    """Start a process of this agent's own interpreter, in a session of its own, with one thread and without GPUs.

    What its predictor prints is appended to `log`. `started` and `over` hear the number of the process.

    Raises:
        PredictorFailed: it cannot be started.
    """
    handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    environment = {**os.environ, **dict.fromkeys(_ONE_THREAD, "1"), "CUDA_VISIBLE_DEVICES": ""}
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
        )
    except OSError as error:
        raise PredictorFailed(f"predictor {key.name}: no process can be started: {error.strerror}") from error
    finally:
        os.close(handle)
    started(process.pid)
    return PredictorProcess(key, process, log, over)
