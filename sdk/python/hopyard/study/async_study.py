"""The study for asyncio: `AsyncStudy` requests evaluations of configurations from a cluster and waits for their results."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import WeakSet

from hopyard.client import AsyncClient
from hopyard.client.types import Experiment, ExperimentState, Job, Metric, Statistic
from hopyard.client.wire import converters
from hopyard.errors import Conflict, HopyardError, InvalidInput, NotFound, TimedOut, Unavailable
from hopyard.policy.vocabulary.reasons import ReasonCode
from hopyard.study.batches import Batcher, TrainingRequest, taken
from hopyard.study.completions import Completions
from hopyard.study.curves import Curves
from hopyard.study.results import Evaluation, failure_of

if TYPE_CHECKING:
    from hopyard.client.submission import SpecLike
    from hopyard.space import Space

_log = logging.getLogger(__name__)

IDLE_SECONDS: Final = 600.0
"""Default of `idle` in `AsyncStudy.create`: seconds after which the scheduler ends a study that no client has open."""

_KEEPS: Final = 3
"""How often a client with an open study restarts its idle timer within one idle period."""

_TRIES: Final = 3
"""Number of tries of a call that times out."""


class AsyncStudy:
    """An experiment that trains the configurations that its clients request, and stores what it has trained (Hippo, section 5.2).

    An object represents one client of a study: `create` or `open` connects it to the experiment, `close` disconnects it. It can
    also be used as a context manager. Several clients, in one process or in several, may use the same study at once. Equal
    evaluations are trained once, and so is any training that different evaluations have in common.

    Example:
        async with AsyncClient.local(slots=2) as client, await AsyncStudy(client).create("experiment.yaml") as study:
            print((await study.eval({"lr": 0.1}, 2)).value)

    Args:
        client: The client of the cluster; or the address of its scheduler; None: the cluster that the environment names (see
            `AsyncClient`). `close` closes a client that was not passed in as an object.
        pause: Awaited before requests are sent, so that further requests can join the same call; None: only requests of
            the same iteration of the event loop share a call.
        sleep: Coroutine function that waits for a number of seconds; tests replace it.
    """

    def __init__(
        self,
        client: AsyncClient | str | None = None,
        *,
        pause: Callable[[], Awaitable[None]] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._own = not isinstance(client, AsyncClient)
        self._client = client if isinstance(client, AsyncClient) else AsyncClient(client)
        self._sleep = sleep
        self._batcher = Batcher(self._ask, pause)
        self._waiting = Completions()
        self._experiment: Experiment | None = None
        self._ends = False
        self._space: Space | None = None
        self._curves: Curves | None = None
        self._watching: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._started: WeakSet[asyncio.Task[Evaluation]] = WeakSet()

    # -------------------------------------------------------------------------------------------------- open and close

    async def create(
        self,
        spec: SpecLike | None = None,
        folder: str | Path | None = None,
        *,
        idle: float = IDLE_SECONDS,
        interpreter: str = "",
        **terms: Any,
    ) -> Self:
        """Create the study: an experiment under the policy `stage_tree` (unless `spec` names another) that trains only on request.

        Args:
            spec: The path of an experiment file, its text, or its contents as a mapping, as for `AsyncClient.create`. Its
                `stop.jobs` has no effect. None: `terms` is the complete specification.
            folder: The folder of the training code; None: the folder of the experiment file or of the trainer class, else
                the current directory.
            idle: Seconds after which the experiment ends if no client has the study open.
            interpreter: Path on the nodes of the Python interpreter for training; see `AsyncClient.create`.
            terms: Fields of an experiment file, such as trainer, space, metric, stop or share. They override those of `spec`.

        Returns:
            This object, now open.

        Raises:
            SpecError: The specification is invalid. The error lists all mistakes.
            InvalidInput: A file is missing, or the policy of the specification does not support requests.
            Conflict: This object is open already.
        """
        from hopyard.study.spec_builder import terms_of

        self._need_closed()
        given, home = await asyncio.to_thread(terms_of, spec, folder, idle, terms)
        experiment = await self._client.create(given, home, interpreter=interpreter)
        self._ends = True
        return self._begin(experiment)

    async def open(self, name: str) -> Self:
        """Open a running study that another client, or an earlier process, created.

        Args:
            name: The id of the experiment, or its name. Of several experiments with this name, the newest that has not
                ended is opened.

        Returns:
            This object, now open.

        Raises:
            NotFound: There is no such experiment.
            Conflict: The experiment has ended, or this object is open already.
        """
        self._need_closed()
        try:
            found = await self._client.get(name)
        except NotFound:
            named = [one for one in await self._client.experiments() if one.name == name]
            if not named:
                raise
            found = next((one for one in named if not one.state.ended), named[0])
        if found.state.ended:
            raise Conflict(
                f"experiment {found.id} is {found.state.value} ({found.reason}); create a new study, to which "
                "what this one has trained is known if its code is the same"
            )
        return self._begin(found)

    async def close(self, end: bool | None = None) -> None:
        """Disconnect from the study. Evaluations that still wait raise `Conflict`. Safe to call twice.

        Args:
            end: Whether to end the experiment, which terminates the jobs of unfinished evaluations, also those of other
                clients. None: end it if this object created it.
        """
        ends = self._ends if end is None else end
        experiment, self._experiment, self._ends = self._experiment, None, False
        for started in list(self._started):  # Nobody retrieves their exceptions any more.
            started.add_done_callback(_seen)
        try:
            tasks = [task for task in (self._keeping, self._watching) if task is not None]
            # Drop the references: a cancelled task keeps its frames and their gRPC call, which logs errors at the exit of Python.
            self._keeping = self._watching = None
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._batcher.close()
            self._waiting.fail(Conflict("the study was closed before this was trained"))
            if experiment is not None and ends:
                await self._client.close_experiment(experiment)
        finally:
            if self._own:
                await self._client.close()

    async def __aenter__(self) -> Self:
        """Return the study. It is closed at the end of the `async with` block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the study, and end its experiment if this object created it."""
        await self.close()

    # -------------------------------------------------------------------------------------------------------- properties

    @property
    def is_open(self) -> bool:
        """Whether the study is connected to an experiment: between `create` or `open` and `close`."""
        return self._experiment is not None

    @property
    def experiment(self) -> Experiment:
        """The experiment of the study, in the state that it had when the study was opened.

        Raises:
            Conflict: The study is not open.
        """
        if self._experiment is None:
            raise Conflict("the study is not open: create(...) begins one, open(name) takes one up")
        return self._experiment

    @property
    def metric(self) -> Metric:
        """The metric that the experiment optimizes. Raises Conflict if the study is not open."""
        return self.experiment.metric

    @property
    def space(self) -> Space:
        """The search space of the experiment: `space.sample(rng)` draws a configuration, `space.grid()` lists all of them.

        Raises:
            Conflict: The study is not open.
        """
        if self._space is None:
            from hopyard.study.spec_builder import space_of

            self._space = space_of(self.experiment.spec)
        return self._space

    def ranked(self, answers: Iterable[Evaluation]) -> list[Evaluation]:
        """Return evaluations ordered by value, best first by the mode of the experiment's metric.

        Equal values keep their order; values that are not finite are last.

        Raises:
            Conflict: The study is not open.
        """
        sign = -1.0 if self.metric.mode == "max" else 1.0
        return sorted(answers, key=lambda one: sign * one.value if math.isfinite(one.value) else math.inf)

    # ------------------------------------------------------------------------------------------------------------- evaluate

    async def eval(
        self,
        configuration: Mapping[str, Any],
        position: int,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the same signature as in the synchronous study
        request_id: str = "",
    ) -> Evaluation:
        """Train a configuration up to a position and return the result. If it was trained that far before, no run is needed.

        Cancellation and the timeout end only the wait: the training continues, and an equal evaluation later returns its
        result. `client.stop_job(study.experiment, job)` terminates the training.

        Args:
            configuration: A value for each hyperparameter of the space.
            position: The position to train to, in the experiment's unit, from 1 to the field `stop.max_iterations` of the experiment.
            timeout: Maximum time to wait in seconds; None: no limit.
            request_id: Key of the request: calls with the same key return the same job, also after a restart of this process
                or of the cluster. Empty: a key derived from configuration and position. Use another key to train a failed
                configuration again.

        Raises:
            InvalidInput: The configuration is not in the space, or the position is out of range.
            EvaluationFailed: The job failed or was terminated. The error names the job and the reason.
            TimedOut: The timeout has passed.
            Conflict: The study has ended, or is not open, or `request_id` belongs to another request.
            Unavailable: The cluster was not reachable for longer than the client's `patience`.
        """
        from hopyard.study.validation import need_seconds, wish_of

        experiment = self.experiment
        wish = wish_of(self.space, configuration, position, request_id)
        need_seconds(timeout)
        try:
            async with asyncio.timeout(timeout):
                return await self._evaluated(experiment, wish)
        except TimeoutError as error:
            if isinstance(error, HopyardError):
                raise
            raise TimedOut(
                f"experiment {experiment.id}: {wish.configuration} is not trained to {position} after {timeout:g} s; it goes on to be"
            ) from error

    def start(
        self,
        configuration: Mapping[str, Any],
        position: int,
        *,
        timeout: float | None = None,
        request_id: str = "",
    ) -> asyncio.Task[Evaluation]:
        """Start an evaluation in the background, and return its task for `wait_all` or `wait_any`.

        Errors of the evaluation (see `eval`) are raised by `result()` of the task.

        Args:
            configuration: A value for each hyperparameter of the space. It is copied, so the caller may change it afterwards.
            position: The position to train to, in the experiment's unit.
            timeout: Maximum time in seconds until the task ends with `TimedOut`; None: no limit.
            request_id: Key of the request: calls with the same key return the same job. Empty: a key derived from
                configuration and position.
        """
        given = taken(configuration)  # The caller may change the mapping afterwards.
        evaluation = self.eval(given, position, timeout=timeout, request_id=request_id)
        task = asyncio.create_task(evaluation, name=f"eval to {position}")
        self._started.add(task)
        return task

    async def wait_all(self, started: Iterable[asyncio.Task[Evaluation]]) -> list[Evaluation]:
        """Wait until all evaluations in `started` (tasks that `start` returned) have finished; return their results in this order.

        If evaluations fail, it waits for all others too, and then raises the error of the first failed one in `started`.

        Raises:
            EvaluationFailed: An evaluation failed. Other errors of `eval` are raised in the same way.
        """
        tasks = list(started)
        if tasks:
            await asyncio.wait(tasks)
        for task in tasks:
            _seen(task)
        return [task.result() for task in tasks]

    async def wait_any(
        self, started: Iterable[asyncio.Task[Evaluation]]
    ) -> tuple[list[asyncio.Task[Evaluation]], list[asyncio.Task[Evaluation]]]:
        """Wait until at least one evaluation has finished, and return the finished tasks and the unfinished ones.

        Errors of evaluations are not raised here but by `result()` of their tasks. Both lists keep the order of `started`.

        Raises:
            InvalidInput: `started` is empty.
        """
        tasks = list(started)
        if not tasks:
            raise InvalidInput("wait_any: needs at least one evaluation that was started, found none")
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return [task for task in tasks if task.done()], [task for task in tasks if not task.done()]

    # ------------------------------------------------------------------------------------------------------------ internals

    def _need_closed(self) -> None:
        if self._experiment is not None:
            raise Conflict(f"this study is open already, with experiment {self._experiment.id}")

    def _begin(self, experiment: Experiment) -> Self:
        self._experiment = experiment
        self._curves, self._space = Curves(self._client, experiment, self._sleep), None
        idle = (experiment.spec.get("stop") or {}).get("idle")
        if idle:
            self._keeping = asyncio.create_task(self._keep(experiment, idle / _KEEPS), name=f"keep {experiment.id}")
        return self

    async def _evaluated(self, experiment: Experiment, wish: TrainingRequest) -> Evaluation:
        self._listen(experiment)
        job = await self._batcher.job(wish)
        if not job.state.ended:
            self._listen(experiment)  # The watch may have ended during the request.
            job = await self._waiting.ended(job)
        if failure := failure_of(job):
            raise failure
        assert self._curves is not None
        return answer_of(job, wish, await self._curves.of(job, job.position), self.metric.name)

    async def _ask(self, wishes: Sequence[TrainingRequest]) -> Sequence[Job]:
        wanted = [(wish.configuration, wish.position) for wish in wishes]
        ids = [wish.request for wish in wishes]
        for _ in range(_TRIES - 1):
            with suppress(TimedOut):  # The scheduler may have accepted them: the same ids return the same jobs.
                return await self._client.request_all(self.experiment, wanted, request_ids=ids)
        return await self._client.request_all(self.experiment, wanted, request_ids=ids)

    def _listen(self, experiment: Experiment) -> None:
        if self._experiment is not experiment:
            raise Conflict("the study was closed before this was trained")
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch(experiment), name=f"watch {experiment.id}")

    async def _watch(self, experiment: Experiment) -> None:
        """Pass each change of a job to the waiting evaluations. When the stream of changes ends or fails, fail all of them."""
        newest = experiment
        try:
            async with aclosing(self._client.watch(experiment)) as changes:
                async for change in changes:
                    if isinstance(change, Job):
                        self._waiting.heard(change)
                    elif isinstance(change, Experiment):
                        newest = change
                        missing = newest.reason_code is ReasonCode.METRIC_MISSING
                        if missing and newest.state is ExperimentState.PAUSED:  # Only a person can continue it.
                            self._waiting.fail(Conflict(f"experiment {newest.id} is PAUSED: {newest.reason}"))
            self._waiting.fail(Conflict(f"experiment {newest.id} is {newest.state.value} ({newest.reason})"))
        except Exception as error:  # noqa: BLE001 - every error must reach the waiting evaluations
            self._waiting.fail(error)

    async def _keep(self, experiment: Experiment, every: float) -> None:
        while True:
            await self._sleep(every)
            try:
                async with asyncio.timeout(every):  # Retries with a long backoff could exceed a short idle time.
                    await self._client.keep_experiment(experiment)
            except (Unavailable, TimeoutError):
                continue  # After its restart, the scheduler starts the idle timer from zero.
            except Conflict:
                return
            except HopyardError as error:
                _log.warning("experiment %s is not kept open any more: %s", experiment.id, error)
                return


def _seen(task: asyncio.Task[Evaluation]) -> None:
    """Mark the exception of a finished task as retrieved, so that asyncio does not log a warning about it."""
    if not task.cancelled():
        task.exception()


def answer_of(job: Job, wish: TrainingRequest, reports: Sequence[Statistic], metric: str) -> Evaluation:
    """Return the evaluation that a completed job results in.

    Args:
        job: The completed job.
        wish: The request that the job was created for.
        reports: The reports of the job and of the jobs that it was forked from, ordered by position.
        metric: Name of the metric that the experiment optimizes.
    """
    curve = converters.curve(reports, metric)
    last = [one for one in reports if one.report.position == reports[-1].report.position]
    names = dict.fromkeys(name for one in last for name in one.report.metrics)
    value = curve[-1].value if curve else job.last_value
    return Evaluation(
        job=job.id,
        configuration=wish.configuration,
        position=job.position,
        value=math.nan if value is None else value,
        metrics={name: converters.curve(last, name)[-1].value for name in names},
        curve=tuple(curve),
        seconds=sum(one.report.seconds for one in reports),
    )
