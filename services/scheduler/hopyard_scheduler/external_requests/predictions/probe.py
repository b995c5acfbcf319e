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
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
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

Probe = Callable[[str, Mapping[str, Any], float, Path | None], Awaitable[str]]

Unpacked = Callable[[str], AbstractAsyncContextManager[Path]]
"""Unpacks the code bundle with a hash into a folder that exists until the context ends."""


async def probe(name: str, parameters: Mapping[str, Any], seconds: float, code: Path | None) -> str:
    """Return what a predictor reads in addition to the curve to predict: "curves" (of other jobs) or "nothing".

    The predictor is created in a process that is killed with its process group before this function returns.

    Args:
        name: The plugin name of the predictor, or `module:Class`.
        parameters: Its parameters.
        seconds: Time limit in seconds to import and create the predictor.
        code: The folder with the code of the experiment, in which modules are looked up first; None: it has none.

    Raises:
        InvalidInput: The predictor cannot be created, its process ended, or the time limit was exceeded.
    """
    path = sys.path if code is None else [str(code), *sys.path]
    wanted = {"name": name, "parameters": parameters, "path": path}
    async with aside("hopyard.predictor.process", f"predictor {name}", priority=0, most_bytes=_MOST_BYTES) as process:
        said = await process.ask(wanted, seconds, "to be made", "while it was made")
    return str(said.get("reads", "nothing"))


class Predictors:
    """Determines and caches what the predictors of experiments read.

    After a failure to create a predictor, this predictor (name, parameters and code) is tried again only after a pause, which
    doubles with each consecutive failure. Other predictors are not affected.

    Args:
        unpacked: Unpacks the code of an experiment.
        seconds: Time limit in seconds to create a predictor.
        probe: Creates a predictor, given name, parameters, time limit and the folder of the code, and returns what it reads, or raises
            HopyardError.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self,
        unpacked: Unpacked,
        seconds: float = SECONDS,
        probe: Probe = probe,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._unpacked = unpacked
        self._seconds = seconds
        self._probe = probe
        self._clock = clock
        self._reads: dict[str, str] = {}
        self._failures: dict[str, Failure] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def check(self, predictor: PredictorSpec, bundle: str) -> None:
        """Create a predictor now. Cached results are not used.

        Args:
            predictor: The predictor.
            bundle: The hash of the experiment's code bundle, for `module:Class`; empty: it has none.

        Raises:
            InvalidInput: The predictor cannot be created.
            NotFound: There is no such bundle.
        """
        key = _key(predictor, bundle)
        async with self._locks.setdefault(key, asyncio.Lock()):
            self._reads.pop(key, None)
            self._failures.pop(key, None)
            await self._look(key, predictor, bundle)

    async def reads(self, predictor: PredictorSpec, bundle: str) -> str:
        """Return what a predictor reads in addition to the curve to predict: "curves" (of other jobs) or "nothing".

        Args:
            predictor: The predictor.
            bundle: The hash of the experiment's code bundle, for `module:Class`; empty: it has none.

        Raises:
            InvalidInput: The predictor cannot be created, or failed so recently that no new attempt is made.
            NotFound: There is no such bundle.
        """
        key = _key(predictor, bundle)
        async with self._locks.setdefault(key, asyncio.Lock()):
            if key not in self._reads:
                failure = self._failures.get(key)
                if failure is not None and self._clock() < failure.until:
                    raise InvalidInput(failure.error)
                await self._look(key, predictor, bundle)
            return self._reads[key]

    async def _look(self, key: str, predictor: PredictorSpec, bundle: str) -> None:
        try:
            if not own_code(predictor) and predictor.name not in plugin_names(PREDICTORS):
                # It raises an error that names the known predictors.
                load_plugin(PREDICTORS, predictor.name, Predictor)
            async with self._unpacked(bundle) if own_code(predictor) and bundle else nullcontext() as code:
                self._reads[key] = await self._probe(predictor.name, predictor.parameters, self._seconds, code)
        except HopyardError as error:
            before = self._failures.get(key)
            now = self._failures[key] = failed(before, str(error), self._clock())
            if before is None or before.error != now.error:
                _LOG.warning("%s; it is tried again after %g s at the earliest", error, now.pause)
            raise
        self._failures.pop(key, None)


def own_code(predictor: PredictorSpec) -> bool:
    """Return True if a predictor is named by `module:Class`, so that it may be in the code of the experiment."""
    return ":" in predictor.name


def _key(predictor: PredictorSpec, bundle: str) -> str:
    return json.dumps([predictor.name, predictor.parameters, bundle if own_code(predictor) else ""], sort_keys=True)
