"""Determines which inputs predictors read: only the learning curve of the job, or also those of other jobs.

It creates a predictor in a separate process, so that foreign code cannot end or block the scheduler.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from weakref import WeakValueDictionary

from hopyard._common.plugins import PREDICTORS, load_plugin, plugin_names
from hopyard._runtime.processes.worker_client import aside
from hopyard.errors import HopyardError, InvalidInput
from hopyard.predictor import Predictor
from hopyard.spec import PredictorSpec
from hopyard_scheduler.external_requests.negative_cache import Failure, failed

_LOG = logging.getLogger(__name__)

SECONDS: Final = 30.0
"""Time limit in seconds to import and create a predictor."""

_MOST_BYTES: Final = 100_000

Probe = Callable[[str, Mapping[str, Any], float], Awaitable[str]]


async def probe(name: str, parameters: Mapping[str, Any], seconds: float) -> str:
    """Return what a predictor reads in addition to the curve to predict: "curves" (of other jobs) or "nothing".

    The predictor is created in a process that is killed with its process group before this function returns.

    Args:
        name: The plugin name of the predictor, or `module:Class`.
        parameters: Its parameters.
        seconds: Time limit in seconds to import and create the predictor.

    Raises:
        InvalidInput: The predictor cannot be created, its process ended, or the time limit was exceeded.
    """
    wanted = {"name": name, "parameters": parameters, "path": sys.path}
    async with aside("hopyard.predictor.process", f"predictor {name}", priority=0, most_bytes=_MOST_BYTES) as process:
        said = await process.ask(wanted, seconds, "to be made", "while it was made")
    return str(said.get("reads", "nothing"))


class Predictors:
    """Determines and caches what the predictors of experiments read.

    After a failure to create a predictor, this predictor (name and parameters) is tried again only after a pause, which
    doubles with each consecutive failure. Other predictors are not affected.

    Args:
        seconds: Time limit in seconds to create a predictor.
        probe: Creates a predictor, given name, parameters and time limit, and returns what it reads, or raises
            HopyardError.
        clock: Returns monotonic seconds.
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
        """Raise InvalidInput unless a predictor can be created now. Cached results are not used."""
        key = _key(predictor)
        async with self._locks.setdefault(key, asyncio.Lock()):
            self._reads.pop(key, None)
            self._failures.pop(key, None)
            await self._look(key, predictor)

    async def reads(self, predictor: PredictorSpec) -> str:
        """Return what a predictor reads in addition to the curve to predict: "curves" (of other jobs) or "nothing".

        Raises:
            InvalidInput: The predictor cannot be created, or failed so recently that no new attempt is made.
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
                # It raises an error that names the known predictors.
                load_plugin(PREDICTORS, predictor.name, Predictor)
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
