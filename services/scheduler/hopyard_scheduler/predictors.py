"""What predictors read, found out in processes of their own: somebody's code neither ends nor holds up the scheduler."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import IO, Any, Final
from weakref import WeakValueDictionary

from hopyard.errors import HopyardError, InvalidInput
from hopyard.plugins import PREDICTORS, load_plugin, plugin_names
from hopyard.predictor import Predictor
from hopyard.printable import printable
from hopyard.spec import PredictorSpec
from hopyard_scheduler.failures import Failure, failed

_LOG = logging.getLogger(__name__)

SECONDS: Final = 30.0
"""How long it may take to import and make a predictor."""

_MOST_BYTES: Final = 100_000
_MOST_SAID: Final = 1000

Probe = Callable[[str, Mapping[str, Any], float], Awaitable[str]]


async def probe(name: str, parameters: Mapping[str, Any], seconds: float) -> str:
    """What a predictor reads, made in a process that is gone when this returns, with all that it started in its group.

    Raises:
        InvalidInput: It cannot be made: what is wrong, or how its process ended, or that it took longer than `seconds`.
    """
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "hopyard.predictor.process",
            str(os.getpid()),
            "--priority",
            "0",
            stdin=PIPE,
            stdout=PIPE,
            stderr=log,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(seconds):
                said = await _made(process, name, parameters, log)
        except TimeoutError as error:
            raise InvalidInput(f"predictor {name} took longer than {seconds:g} s to be made") from error
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())
    if "error" in said:
        raise InvalidInput(str(said["error"]))
    return str(said.get("reads", "nothing"))


async def _made(process: Process, name: str, parameters: Mapping[str, Any], log: IO[bytes]) -> dict[str, Any]:
    try:
        return await _answer(process, {"name": name, "parameters": parameters, "path": sys.path})
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        code = await process.wait()  # It may go on without its streams.
        how = f"ended with exit code {code}" if code >= 0 else f"was killed by signal {-code}"
        raise InvalidInput(f"predictor {name}: its process {how} while it was made{_said(log)}") from error
    except ValueError as error:
        raise InvalidInput(f"predictor {name}: its process said what is no answer: {error}") from error


async def _answer(process: Process, wanted: Mapping[str, Any]) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    frame = json.dumps(wanted).encode()
    process.stdin.write(len(frame).to_bytes(4, "big") + frame)
    await process.stdin.drain()
    length = int.from_bytes(await process.stdout.readexactly(4), "big")
    found = json.loads(await process.stdout.readexactly(min(length, _MOST_BYTES)))
    if not isinstance(found, dict):
        raise ValueError(f"found {found!r:.80}, where an object is needed")
    return found


def _said(log: IO[bytes]) -> str:
    log.seek(max(0, log.seek(0, os.SEEK_END) - _MOST_SAID))
    text = printable(log.read().decode("utf-8", "replace").strip())
    return f"; it said: {text}" if text else ""


class Predictors:
    """What the predictors of experiments read. Each is looked at once; one that cannot be made from time to time.

    Args:
        seconds: How long making one may take.
        probe: Makes one and answers what it reads, or raises HopyardError.
        clock: Seconds.
    """

    def __init__(
        self, seconds: float = SECONDS, probe: Probe = probe, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._probe = probe
        self._clock = clock
        self._reads: dict[str, str] = {}
        self._failures: dict[str, Failure] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def check(self, predictor: PredictorSpec) -> None:
        """Whether a predictor can be made now, whatever was found before.

        Raises:
            InvalidInput: It cannot.
        """
        key = _key(predictor)
        async with self._locks.setdefault(key, asyncio.Lock()):
            self._reads.pop(key, None)
            self._failures.pop(key, None)
            await self._look(key, predictor)

    async def reads(self, predictor: PredictorSpec) -> str:
        """Which of "nothing" and "curves" a predictor reads.

        Raises:
            InvalidInput: It cannot be made, or could not a short while ago.
        """
        key = _key(predictor)
        async with self._locks.setdefault(key, asyncio.Lock()):
            if key not in self._reads:
                failure = self._failures.get(key)
                if failure is not None and self._clock() < failure.until:
                    raise InvalidInput(failure.error)
                await self._look(key, predictor)
            return self._reads[key]

    async def _look(self, key: str, predictor: PredictorSpec) -> None:
        try:
            if ":" not in predictor.name and predictor.name not in plugin_names(PREDICTORS):
                load_plugin(PREDICTORS, predictor.name, Predictor)  # Nobody has it: says so, and who is there.
            self._reads[key] = await self._probe(predictor.name, predictor.parameters, self._seconds)
        except HopyardError as error:
            before = self._failures.get(key)
            now = self._failures[key] = failed(before, str(error), self._clock())
            if before is None or before.error != now.error:
                _LOG.warning("%s; it is tried again after %g s at the earliest", error, now.pause)
            raise
        self._failures.pop(key, None)


def _key(predictor: PredictorSpec) -> str:
    return json.dumps([predictor.name, predictor.parameters], sort_keys=True)
