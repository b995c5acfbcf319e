"""The synchronous study: the asynchronous one on the event loop of clients without one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from hopyard.client.portal import LoopThread
from hopyard.client.sync_client import Client
from hopyard.client.types import Experiment, Metric
from hopyard.errors import InvalidInput
from hopyard.study.async_study import IDLE_SECONDS, AsyncStudy
from hopyard.study.batches import taken
from hopyard.study.results import Evaluation

if TYPE_CHECKING:
    from hopyard.client.submission import SpecLike
    from hopyard.space import Space

_GATHER_SECONDS: Final = 0.005
"""How long a request waits for those of other threads."""


async def _gather() -> None:
    await asyncio.sleep(_GATHER_SECONDS)


class Study:
    """A study for code without an event loop; threads may share it. `AsyncStudy` says what it promises.

        with Study(client).create("experiment.yaml") as study:
            print(study.eval({"lr": 0.1}, 9).value)

    Args:
        client: The cluster's; or its scheduler's HOST:PORT; None: the cluster that the environment names.
    """

    def __init__(self, client: Client | str | None = None) -> None:
        behind = client.asynchronous if isinstance(client, Client) else client
        self._loop = LoopThread()
        self._study = AsyncStudy(behind, pause=_gather)

    def create(
        self,
        spec: SpecLike | None = None,
        folder: str | Path | None = None,
        *,
        idle: float = IDLE_SECONDS,
        interpreter: str = "",
        **terms: Any,
    ) -> Self:
        """Begin a study; see `AsyncStudy.create`."""
        return self._opened(self._study.create(spec, folder, idle=idle, interpreter=interpreter, **terms))

    def open(self, name: str) -> Self:
        """Take up a study that runs; see `AsyncStudy.open`."""
        return self._opened(self._study.open(name))

    def close(self, end: bool | None = None) -> None:
        """Leave the study; whoever created it ends it. See `AsyncStudy.close`. In a process that was forked off it does nothing."""
        if self._loop.inherited:
            return
        try:
            self._loop.run(self._study.close(end))
        finally:
            self._loop.close()

    def __enter__(self) -> Self:
        """The study, which is left at the end."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    @property
    def experiment(self) -> Experiment:
        """Its experiment as it was when the study was opened."""
        return self._study.experiment

    @property
    def metric(self) -> Metric:
        """What it optimises."""
        return self._study.metric

    @property
    def space(self) -> Space:
        """Its configurations."""
        return self._study.space

    def ranked(self, answers: Iterable[Evaluation]) -> list[Evaluation]:
        """Evaluations by their values, best first; see `AsyncStudy.ranked`."""
        return self._study.ranked(answers)

    def eval(
        self,
        configuration: Mapping[str, Any],
        position: int,
        *,
        timeout: float | None = None,
        request_id: str = "",
    ) -> Evaluation:
        """Have a configuration trained to a position; see `AsyncStudy.eval`."""
        return self._loop.run(self._study.eval(configuration, position, timeout=timeout, request_id=request_id))

    def start(
        self,
        configuration: Mapping[str, Any],
        position: int,
        *,
        timeout: float | None = None,
        request_id: str = "",
    ) -> Future[Evaluation]:
        """An evaluation beside whatever comes next, for `wait_all` and `wait_any`; see `AsyncStudy.eval`."""
        given = taken(configuration)  # What the caller makes of it later is not what was asked for.
        return self._loop.start(self._study.eval(given, position, timeout=timeout, request_id=request_id))

    def wait_all(self, started: Iterable[Future[Evaluation]]) -> list[Evaluation]:
        """All of them, in their order; raises as `AsyncStudy.wait_all` does."""
        futures = list(started)
        wait(futures)
        return [future.result() for future in futures]

    def wait_any(
        self, started: Iterable[Future[Evaluation]]
    ) -> tuple[list[Future[Evaluation]], list[Future[Evaluation]]]:
        """Those that are over, of which there is at least one, and those that are not; see `AsyncStudy.wait_any`."""
        futures = list(started)
        if not futures:
            raise InvalidInput("wait_any: needs at least one evaluation that was started, found none")
        wait(futures, return_when=FIRST_COMPLETED)
        return [one for one in futures if one.done()], [one for one in futures if not one.done()]

    def _opened(self, opening: Any) -> Self:
        try:
            self._loop.run(opening)
        except BaseException:
            if not self._study.is_open:  # One that is open already stays so.
                self.close()
            raise
        return self
