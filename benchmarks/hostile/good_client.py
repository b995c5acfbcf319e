"""A client that calls without a pause and measures each call."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Self

from hopyard.client import AsyncClient
from hopyard.client.types import Experiment
from hopyard.errors import HopyardError
from hostile.evaluation import Call


class GoodClient:
    """Calls `get` and `jobs` of an experiment in turns, without a pause, while its context is open.

    Args:
        server: Address of the cluster.
        experiment: The experiment.

    Attributes:
        calls: All calls that have ended, in order.
    """

    def __init__(self, server: str, experiment: Experiment) -> None:
        self.calls: list[Call] = []
        self._server = server
        self._experiment = experiment
        self._ends = False

    async def __aenter__(self) -> Self:
        """Begin to call."""
        self._calling = asyncio.create_task(self._call(), name="the good client")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the end of the current call."""
        self._ends = True
        await self._calling

    async def _call(self) -> None:
        async with AsyncClient(self._server) as client:
            await client.get(self._experiment)  # Connect.
            while not self._ends:
                for name, method in (("get", client.get), ("jobs", client.jobs)):
                    at, began, error = time.time(), time.perf_counter(), ""
                    try:
                        await method(self._experiment)
                    except HopyardError as raised:
                        error = str(raised)
                    self.calls.append(Call(name, at, time.perf_counter() - began, error))
                    await asyncio.sleep(0)  # A call that fails at once must not stop this event loop.
