"""The synchronous study: runs an `AsyncStudy` on a background event loop."""

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
"""Seconds for which a request waits, so that requests of other threads join the same call."""


async def _gather() -> None:
    await asyncio.sleep(_GATHER_SECONDS)


class Study:
    """A study for code without an event loop. Threads may share one object. `AsyncStudy` documents its guarantees.

    Example:
        with Client.local(slots=2) as client, Study(client).create("experiment.yaml") as study:
            print(study.eval({"lr": 0.1}, 2).value)

    Args:
        client: The client of the cluster; or the address of its scheduler; None: the cluster that the environment names.
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
        """Create the study and return this object, now open.

        Args:
            spec: The path of an experiment file, its text, or its contents as a mapping; None: `terms` is the complete
                specification.
            folder: The folder of the training code; None: the folder of the experiment file or of the trainer class, else
                the current directory.
            idle: Seconds after which the experiment ends if no client has the study open.
            interpreter: Path on the nodes of the Python interpreter for training; see `AsyncClient.create`.
            terms: Fields of an experiment file. They override those of `spec`.

        Raises:
            SpecError: The specification is invalid. The error lists all mistakes.
            InvalidInput: A file is missing, or the policy of the specification does not support requests.
            Conflict: This object is open already.
        """
        return self._opened(self._study.create(spec, folder, idle=idle, interpreter=interpreter, **terms))

    def open(self, name: str) -> Self:
        """Open the running study with the id or name `name`, and return this object.

        Of several experiments with this name, the newest that has not ended is opened.

        Raises:
            NotFound: There is no such experiment.
            Conflict: The experiment has ended, or this object is open already.
        """
        return self._opened(self._study.open(name))

    def close(self, end: bool | None = None) -> None:
        """Disconnect from the study. `end` says whether to end the experiment; None: if this object created it. See `AsyncStudy.close`.

        It does nothing in a forked process that inherited the object.
        """
        if self._loop.inherited:
            return
        try:
            self._loop.run(self._study.close(end))
        finally:
            self._loop.close()

    def __enter__(self) -> Self:
        """Return the study. It is closed at the end of the `with` block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the study, and end its experiment if this object created it."""
        self.close()

    @property
    def experiment(self) -> Experiment:
        """The experiment of the study, in the state that it had when the study was opened. Raises Conflict if it is not open."""
        return self._study.experiment

    @property
    def metric(self) -> Metric:
        """The metric that the experiment optimizes. Raises Conflict if the study is not open."""
        return self._study.metric

    @property
    def space(self) -> Space:
        """The search space of the experiment. Raises Conflict if the study is not open."""
        return self._study.space

    def ranked(self, answers: Iterable[Evaluation]) -> list[Evaluation]:
        """Return evaluations ordered by value, best first by the mode of the metric; values that are not finite are last.

        Raises:
            Conflict: The study is not open.
        """
        return self._study.ranked(answers)

    def eval(
        self,
        configuration: Mapping[str, Any],
        position: int,
        *,
        timeout: float | None = None,
        request_id: str = "",
    ) -> Evaluation:
        """Train a configuration up to a position and return the result. If it was trained that far before, no run is needed.

        The timeout ends only the wait: the training continues, and an equal evaluation later returns its result.

        Args:
            configuration: A value for each hyperparameter of the space.
            position: The position to train to, in the experiment's unit.
            timeout: Maximum time to wait in seconds, after which `TimedOut` is raised; None: no limit.
            request_id: Key of the request: calls with the same key return the same job. Empty: a key derived from
                configuration and position.

        Raises:
            InvalidInput: The configuration is not in the space, or the position is out of range.
            EvaluationFailed: The job failed or was terminated. The error names the job and the reason.
            TimedOut: The timeout has passed.
            Conflict: The study has ended, or is not open, or `request_id` belongs to another request.
            Unavailable: The cluster was not reachable for longer than the client's `patience`.
        """
        return self._loop.run(self._study.eval(configuration, position, timeout=timeout, request_id=request_id))

    def start(
        self,
        configuration: Mapping[str, Any],
        position: int,
        *,
        timeout: float | None = None,
        request_id: str = "",
    ) -> Future[Evaluation]:
        """Start an evaluation in the background, and return its future for `wait_all` or `wait_any`.

        Errors of the evaluation (see `AsyncStudy.eval`) are raised by `result()` of the future.

        Args:
            configuration: A value for each hyperparameter of the space. It is copied, so the caller may change it afterwards.
            position: The position to train to, in the experiment's unit.
            timeout: Maximum time in seconds until the future ends with `TimedOut`; None: no limit.
            request_id: Key of the request: calls with the same key return the same job. Empty: a key derived from
                configuration and position.
        """
        given = taken(configuration)  # The caller may change the mapping afterwards.
        return self._loop.start(self._study.eval(given, position, timeout=timeout, request_id=request_id))

    def wait_all(self, started: Iterable[Future[Evaluation]]) -> list[Evaluation]:
        """Wait until all evaluations in `started` (futures that `start` returned) have finished; return their results in this order.

        If evaluations fail, it waits for all others too, and then raises the error of the first failed one in `started`.

        Raises:
            EvaluationFailed: An evaluation failed. Other errors of `eval` are raised in the same way.
        """
        futures = list(started)
        wait(futures)
        return [future.result() for future in futures]

    def wait_any(
        self, started: Iterable[Future[Evaluation]]
    ) -> tuple[list[Future[Evaluation]], list[Future[Evaluation]]]:
        """Wait until at least one evaluation has finished, and return the finished futures and the unfinished ones.

        Errors of evaluations are not raised here but by `result()` of their futures. Both lists keep the order of `started`.

        Raises:
            InvalidInput: `started` is empty.
        """
        futures = list(started)
        if not futures:
            raise InvalidInput("wait_any: needs at least one evaluation that was started, found none")
        wait(futures, return_when=FIRST_COMPLETED)
        return [one for one in futures if one.done()], [one for one in futures if not one.done()]

    def _opened(self, opening: Any) -> Self:
        try:
            self._loop.run(opening)
        except BaseException:
            if not self._study.is_open:  # A study that was open before the call stays open.
                self.close()
            raise
        return self
