"""The asynchronous study."""

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
from hopyard.client.types import Experiment, Job, Metric, Statistic
from hopyard.client.wire import converters
from hopyard.errors import Conflict, HopyardError, InvalidInput, NotFound, TimedOut, Unavailable
from hopyard.study.batches import Batcher, Wish, taken
from hopyard.study.completions import Completions
from hopyard.study.curves import Curves
from hopyard.study.results import Evaluation, failure_of

if TYPE_CHECKING:
    from hopyard.client.submission import SpecLike
    from hopyard.space import Space

_log = logging.getLogger(__name__)

IDLE_SECONDS: Final = 600.0
"""How long a study stays open that nobody has open, unless it is created with another time."""

_KEEPS: Final = 3
"""So often within its idle time does a client tell that it has a study open."""

_TRIES: Final = 3
"""So often is a call made that gets no answer in time."""


class AsyncStudy:
    """An experiment that trains what its clients ask for, and keeps what it has trained (Hippo, section 5.2).

        study = await AsyncStudy(client).create("experiment.yaml")
        answer = await study.eval({"lr": 0.1, "momentum": 0.9}, 9)

    Several tuners, in one process or in many, may use one study at once. Equal evaluations are one, and what different ones have
    in common is trained once. Use it as a context manager, or `close` it.

    Args:
        client: The cluster's; or its scheduler's HOST:PORT; None: the cluster that the environment names, see `AsyncClient`.
        pause: Waited for before requests go out, so that others join them; None: those of one turn of the event loop are together.
        sleep: Waits for so many seconds.
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
        """Begin a study: an experiment under the policy `stage_tree` without trials of its own.

        Args:
            spec: An experiment file, its text or its contents, as for `AsyncClient.create`; its `stop.jobs` plays no part. None:
                `terms` say all.
            folder: Where the training code lies; None: beside the file or the trainer's class.
            idle: Seconds for which it stays open after the last client that had it open has gone.
            interpreter: The Python that trains; see `AsyncClient.create`.
            terms: Fields of an experiment file that take the place of those of `spec`: trainer, space, metric, stop, share, ...

        Raises:
            SpecError: All that is wrong with the terms.
            InvalidInput: A file is not there, or its policy serves no requests.
            Conflict: This study is open already.
        """
        from hopyard.study.spec_builder import terms_of

        self._need_closed()
        given, home = await asyncio.to_thread(terms_of, spec, folder, idle, terms)
        experiment = await self._client.create(given, home, interpreter=interpreter)
        self._ends = True
        return self._begin(experiment)

    async def open(self, name: str) -> Self:
        """Take up a study that runs: one that another process began, or an earlier life of this one.

        Args:
            name: The experiment's id, or its name: of several that are not over the newest.

        Raises:
            NotFound: There is none.
            Conflict: It has ended, or this study is open already.
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
        """Leave the study. Whoever created it ends it; others only go. What still waits raises. Safe to call twice.

        Args:
            end: Whether the experiment ends, and with it all that is asked of it; None: if it was created here.
        """
        ends = self._ends if end is None else end
        experiment, self._experiment, self._ends = self._experiment, None, False
        for started in list(self._started):  # Nobody will ask them any more why they failed.
            started.add_done_callback(_seen)
        try:
            tasks = [task for task in (self._keeping, self._watching) if task is not None]
            # Let go of them: a cancelled one remembers where it was, a call of gRPC included, which complains when Python ends first.
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
        """The study, which is left at the end."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()

    # -------------------------------------------------------------------------------------------------------- what it is

    @property
    def is_open(self) -> bool:
        """Whether it has an experiment."""
        return self._experiment is not None

    @property
    def experiment(self) -> Experiment:
        """Its experiment as it was when the study was opened.

        Raises:
            Conflict: It is not open.
        """
        if self._experiment is None:
            raise Conflict("the study is not open: create(...) begins one, open(name) takes one up")
        return self._experiment

    @property
    def metric(self) -> Metric:
        """What it optimises."""
        return self.experiment.metric

    @property
    def space(self) -> Space:
        """Its configurations: `space.sample(rng)` draws one, `space.grid()` has them all."""
        if self._space is None:
            from hopyard.study.spec_builder import space_of

            self._space = space_of(self.experiment.spec)
        return self._space

    def ranked(self, answers: Iterable[Evaluation]) -> list[Evaluation]:
        """Evaluations by their values, best first; of equal ones the earlier first, what is not finite last."""
        sign = -1.0 if self.metric.mode == "max" else 1.0
        return sorted(answers, key=lambda one: sign * one.value if math.isfinite(one.value) else math.inf)

    # ------------------------------------------------------------------------------------------------------------- evaluate

    async def eval(
        self,
        configuration: Mapping[str, Any],
        position: int,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the same face as the synchronous study
        request_id: str = "",
    ) -> Evaluation:
        """Have a configuration trained to a position. At once, without a run, if it was trained so far before.

        Who is cancelled or runs out of time only waits no longer: what has been asked goes on to be trained, and the same evaluation
        later finds it. `client.stop_job(study.experiment, job)` ends it.

        Args:
            configuration: All values of the space.
            position: In the experiment's unit, in 1..max_iterations.
            timeout: Seconds to wait at most; None: as long as it takes.
            request_id: Names the request. Empty: equal evaluations are the same request, also after a restart of this process or of the
                cluster; with another name a failed one is tried again.

        Raises:
            InvalidInput: It does not lie in the space, or there is no such position.
            EvaluationFailed: Its job failed, or was ended; says which, and why.
            TimedOut: It took longer.
            Conflict: The study has ended, or is not open.
            Unavailable: The cluster was not reachable for longer than the client's patience.
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
        """An evaluation beside whatever comes next, for `wait_all` and `wait_any`; see `eval`."""
        given = taken(configuration)  # What the caller makes of it later is not what was asked for.
        evaluation = self.eval(given, position, timeout=timeout, request_id=request_id)
        task = asyncio.create_task(evaluation, name=f"eval to {position}")
        self._started.add(task)
        return task

    async def wait_all(self, started: Iterable[asyncio.Task[Evaluation]]) -> list[Evaluation]:
        """All of them, in their order.

        Raises:
            EvaluationFailed: The first that did, once all are over; or what else `eval` raises.
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
        """Those that are over, of which there is at least one, and those that are not, each in their order.

        Raises:
            InvalidInput: There are none to wait for.
        """
        tasks = list(started)
        if not tasks:
            raise InvalidInput("wait_any: needs at least one evaluation that was started, found none")
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return [task for task in tasks if task.done()], [task for task in tasks if not task.done()]

    # ------------------------------------------------------------------------------------------------------------- the rest

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

    async def _evaluated(self, experiment: Experiment, wish: Wish) -> Evaluation:
        self._listen(experiment)
        job = await self._batcher.job(wish)
        if not job.state.ended:
            self._listen(experiment)  # What was heard until now may have ended meanwhile.
            job = await self._waiting.ended(job)
        if failure := failure_of(job):
            raise failure
        assert self._curves is not None
        return answer_of(job, wish, await self._curves.of(job, job.position), self.metric.name)

    async def _ask(self, wishes: Sequence[Wish]) -> Sequence[Job]:
        wanted = [(wish.configuration, wish.position) for wish in wishes]
        ids = [wish.request for wish in wishes]
        for _ in range(_TRIES - 1):
            with suppress(TimedOut):  # Perhaps they were taken: the same ids find the same jobs.
                return await self._client.request_all(self.experiment, wanted, request_ids=ids)
        return await self._client.request_all(self.experiment, wanted, request_ids=ids)

    def _listen(self, experiment: Experiment) -> None:
        if self._experiment is not experiment:
            raise Conflict("the study was closed before this was trained")
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch(experiment), name=f"watch {experiment.id}")

    async def _watch(self, experiment: Experiment) -> None:
        """Tells those who wait what became of their jobs; when nothing more can be heard, that."""
        newest = experiment
        try:
            async with aclosing(self._client.watch(experiment)) as changes:
                async for change in changes:
                    if isinstance(change, Job):
                        self._waiting.heard(change)
                    elif isinstance(change, Experiment):
                        newest = change
            self._waiting.fail(Conflict(f"experiment {newest.id} is {newest.state.value} ({newest.reason})"))
        except Exception as error:  # noqa: BLE001 - nobody else would tell those who wait
            self._waiting.fail(error)

    async def _keep(self, experiment: Experiment, every: float) -> None:
        while True:
            await self._sleep(every)
            try:
                async with asyncio.timeout(every):  # Tries that have come to be far apart could miss a short time.
                    await self._client.keep_experiment(experiment)
            except (Unavailable, TimeoutError):
                continue  # A cluster that comes back gives it its full time.
            except Conflict:
                return
            except HopyardError as error:
                _log.warning("experiment %s is not kept open any more: %s", experiment.id, error)
                return


def _seen(task: asyncio.Task[Evaluation]) -> None:
    """An evaluation's error is known, or of no use any more: asyncio need not complain that nobody asked for it."""
    if not task.cancelled():
        task.exception()


def answer_of(job: Job, wish: Wish, reports: Sequence[Statistic], metric: str) -> Evaluation:
    """What a job that is complete answers, given its reports."""
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
