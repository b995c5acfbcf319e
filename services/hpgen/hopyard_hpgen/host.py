"""The open generators of all experiments: each serves one call at a time, and is closed if a call takes too long.

Built-in generators run on threads of the service, generators of third parties in processes (`isolated_generator`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from hopyard._common.plugins import GENERATORS, is_built_in
from hopyard._runtime.processes.process_limits import ResourceLimits
from hopyard.errors import Conflict, Exhausted, InvalidInput, NotFound, Unavailable
from hopyard.generator import Generator, Result
from hopyard.space import Configuration
from hopyard.spec import ExperimentSpec
from hopyard_hpgen.call_log import Call
from hopyard_hpgen.experiment_generator import ExperimentGenerator, GeneratorFailed, GeneratorTerms, make_generator
from hopyard_hpgen.isolated_generator import GeneratorProcess, IsolatedGenerator, runs_inline
from hopyard_hpgen.killable_threads import Threads, WorkTimeout

_log = logging.getLogger(__name__)

MAX_OPEN: Final = 1000
"""Maximum number of open generators."""

MAX_PROCESSES: Final = 200
"""Maximum number of open generators that run in processes."""

START_SECONDS: Final = 30.0
"""Additional time in seconds for the process of a generator to start."""

DEFAULT_SECONDS: Final = 20.0
"""Default time limit in seconds for one call of a generator."""

T = TypeVar("T")


class _Recorded:
    """An iterable of recorded calls, with which the time limit applies to each call while a generator repeats them.

    `step` identifies the current call: it becomes a new object whenever the iteration yields the next call. `GeneratorHost._on` reads
    it while the iteration runs, and measures the time of each step separately.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls
        self.step = object()

    def __iter__(self) -> Iterator[Call]:
        for call in self._calls:
            self.step = object()
            yield call


@dataclass(eq=False)
class _Open:
    """An open generator of one experiment, and the queue of its calls. A slow generator delays only the calls of its experiment.

    Attributes:
        turn: The lock that a call holds while it uses the generator. Calls get it in order of arrival.
        generator: The generator; None until the first call has created it.
        isolated: Whether the generator runs in a process.
        process: The process in which the generator runs; None: it runs inside the service, or was not created yet.
        partial: Whether further recorded calls must follow before other calls are accepted.
        waiting: The tasks of all calls that have not ended, including the current one.
        under_way: The task of the call that uses the generator now; None: no call does.
        closed: Whether the generator was closed. Its process then ends after the current call.
    """

    isolated: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    generator: ExperimentGenerator | None = None
    process: GeneratorProcess | None = None
    partial: bool = False
    waiting: set[asyncio.Task[Any]] = field(default_factory=set)
    under_way: asyncio.Task[Any] | None = None
    closed: bool = False

    def end_process(self) -> None:
        """End the process of the generator, if it has one. Does not block."""
        if self.process is not None:
            self.process.close()


class GeneratorHost:
    """Executes the operations of the service on the generators of all experiments. Use it in one event loop, and `close` it at the end.

    A new instance has no open generators.

    Args:
        seconds: Time limit in seconds for a call of a generator (> 0). If a call takes longer, its generator fails and must be opened
            again. Its process is ended, or its thread is interrupted.
        limits: The limits of the resources of each process with a generator; None: the default ones.
    """

    def __init__(self, seconds: float = DEFAULT_SECONDS, limits: ResourceLimits | None = None) -> None:
        self._seconds = seconds
        self._limits = limits or ResourceLimits()
        self._processes = set[GeneratorProcess]()
        self._threads = Threads("generator")
        self._open = dict[str, _Open]()
        self._closed = False

    async def open(
        self, experiment: str, spec: ExperimentSpec, calls: Sequence[Call] = (), *, more: bool = False
    ) -> GeneratorTerms:
        """Open the generator of an experiment, and return its properties.

        If the generator is open, has not failed, awaits no further recorded calls, and `calls` is empty, its state does not change.
        Otherwise a new generator is created, and the recorded calls are repeated on it. An open generator is replaced because the
        caller's record is authoritative: a proposal that the caller lost before recording it must be made again.

        Args:
            experiment: Id of the experiment.
            spec: The specification of the experiment.
            calls: The recorded calls, in order.
            more: Whether further recorded calls follow (`replay_calls`). Until the last of them, the generator accepts no other calls.

        Raises:
            InvalidInput: The id is empty, or the generator cannot be created (`make_generator`).
            Conflict: The generator is open with another specification, or proposed another configuration than the recorded one.
            GeneratorFailed: The generator raised an error or made an invalid proposal, or a call took too long.
            GeneratorEnded: Its process ended.
            Exhausted: `MAX_OPEN` generators are open, or `MAX_PROCESSES` of them are in processes.
            Unavailable: The service is stopping.
        """
        _require("experiment", experiment)
        isolated = not runs_inline(spec.generator)
        found = self._open.get(experiment) or self._add(experiment, isolated)
        recorded, loop = _Recorded(calls), asyncio.get_running_loop()

        def make(spec: ExperimentSpec) -> Generator:
            found.end_process()
            if not isolated:
                if not is_built_in(GENERATORS, spec.generator.name):
                    _log.warning(
                        "experiment %s: generator %s runs inside this service (inline: true)",
                        experiment,
                        spec.generator.name,
                    )
                return make_generator(spec)
            found.process = process = GeneratorProcess(spec.generator.name, self._limits, loop)
            loop.call_soon_threadsafe(self._watch, process)
            return IsolatedGenerator(spec, process)

        def build() -> GeneratorTerms:
            current = found.generator
            if current is not None and not current.is_for(spec):
                raise Conflict(
                    f"experiment {experiment}: its generator is open with another space, name, seed or parameters; "
                    "close it first"
                )
            if current is None or current.failed or calls or found.partial:
                current = found.generator = ExperimentGenerator(experiment, spec, recorded, make)
                found.partial = more
            return current.terms

        what = f"generator {spec.generator.name}: open"
        try:
            seconds = self._seconds + START_SECONDS if isolated else self._seconds
            return await self._on(experiment, found, build, what, lambda: recorded.step, seconds)
        finally:
            if found.generator is None and self._open.get(experiment) is found:
                await self.forget(experiment)

    async def replay_calls(self, experiment: str, calls: Sequence[Call], *, more: bool = False) -> GeneratorTerms:
        """Repeat recorded calls on an open generator, and return its properties.

        The calls are the next part of those from which `open` (with `more`) restores the generator, or calls that were recorded after
        the generator was opened, such as results. Calls that the generator received before have no further effect.

        Args:
            experiment: Id of the experiment.
            calls: The recorded calls, in order.
            more: Whether further recorded calls follow. Until the last of them, the generator accepts no other calls.

        Raises:
            NotFound: The experiment's generator is not open.
            Conflict: The generator proposed another configuration than the recorded one.
            GeneratorFailed: The generator raised an error or made an invalid proposal, or a call took too long.
            Unavailable: The generator was closed while the call waited for its turn.
        """
        found, recorded = self._find(experiment), _Recorded(calls)

        def work() -> GeneratorTerms:
            if found.generator is None:
                raise _not_open(experiment)
            found.generator.replay_calls(recorded)
            found.partial = more
            return found.generator.terms

        return await self._on(experiment, found, work, "recorded calls", lambda: recorded.step)

    async def create_job(self, experiment: str, job: str) -> Configuration | None:
        """Return the configuration of a job; None: the generator is exhausted. See `ExperimentGenerator.create_job`.

        Raises:
            InvalidInput: An id is empty.
            NotFound: The experiment's generator is not open, or must get further recorded calls first (`replay_calls`).
            GeneratorFailed: The generator failed, or took too long.
            Unavailable: The generator was closed while the call waited for its turn.
        """
        _require("job", job)
        return await self._call(experiment, f"create({job!r})", lambda generator: generator.create_job(job))

    async def report_performance(self, experiment: str, job: str, position: int, metrics: Mapping[str, float]) -> None:
        """Report the metrics of a job at a position to the generator of an experiment. Errors as in `create_job`.

        A report is ignored if the job has a final result, or has a report at this or a later position.
        """
        _require("job", job)
        what = f"report({job!r}, {position})"
        await self._call(experiment, what, lambda generator: generator.report_performance(job, position, metrics))

    async def report_final_performance(self, experiment: str, job: str, result: Result) -> None:
        """Report a job's final result to an experiment's generator; only the first one has an effect. Errors as in `create_job`."""
        _require("job", job)
        what = f"report_final({job!r})"
        await self._call(experiment, what, lambda generator: generator.report_final_performance(job, result))

    async def forget(self, experiment: str) -> None:
        """Close the generator of an experiment, if it is open.

        A call that is running ends as usual. Calls that wait for their turn raise `Unavailable`.
        """
        _require("experiment", experiment)
        if (found := self._open.pop(experiment, None)) is not None:
            found.closed = True
            if found.under_way is None:
                found.end_process()
            for call in found.waiting - {found.under_way}:
                call.cancel()

    async def close(self) -> None:
        """Close all generators. Waiting and running calls raise `Unavailable`; threads and processes end. Safe to call twice."""
        self._closed = True
        while self._open:
            _, found = self._open.popitem()
            for call in found.waiting:
                call.cancel()
            await asyncio.gather(*found.waiting, return_exceptions=True)
        processes = list(self._processes)
        for process in processes:
            process.close()
        await asyncio.gather(*(process.ended() for process in processes))
        self._threads.close()

    def _watch(self, process: GeneratorProcess) -> None:
        """Keep a new process until it has ended, so that `close` ends it."""
        if self._closed:
            process.close()
        self._processes.add(process)
        task = asyncio.create_task(process.ended())
        task.add_done_callback(lambda _: self._processes.discard(process))

    def _add(self, experiment: str, isolated: bool) -> _Open:
        if self._closed:
            raise Unavailable(f"experiment {experiment}: the generator service stops")
        if len(self._open) >= MAX_OPEN:
            raise Exhausted(f"experiment {experiment}: {MAX_OPEN} generators are open, which is the limit; close some")
        if isolated and sum(one.isolated for one in self._open.values()) >= MAX_PROCESSES:
            raise Exhausted(
                f"experiment {experiment}: {MAX_PROCESSES} experiments have generators of third parties, which is the limit; stop some "
                "of them, or wait until some end"
            )
        found = self._open[experiment] = _Open(isolated)
        return found

    async def _call(self, experiment: str, what: str, call: Callable[[ExperimentGenerator], T]) -> T:
        found = self._find(experiment)

        def work() -> T:
            if found.generator is None or found.partial:
                raise _not_open(experiment)
            return call(found.generator)

        return await self._on(experiment, found, work, what)

    def _find(self, experiment: str) -> _Open:
        _require("experiment", experiment)
        found = self._open.get(experiment)
        if found is None:
            raise _not_open(experiment)
        return found

    async def _on(
        self,
        experiment: str,
        found: _Open,
        work: Callable[[], T],
        what: str,
        doing: Callable[[], object] | None = None,
        seconds: float | None = None,
    ) -> T:
        """Run `work` on a thread when all earlier calls of the same generator have ended, and return its result.

        If the caller is cancelled, the work still runs to its end, and its result is dropped.

        Args:
            experiment: Id of the experiment.
            found: The open generator of the experiment.
            work: The function to run.
            what: Description of the call, for error messages.
            doing: Returns an object that identifies the current step of the work: the time limit applies to each step. None: it applies
                to the whole work.
            seconds: The time limit in seconds; None: that of a call.

        Raises:
            GeneratorFailed: The work took too long.
            Unavailable: The generator was closed while the work waited for its turn.
        """
        task = asyncio.create_task(self._in_turn(experiment, found, work, what, doing, seconds or self._seconds))
        found.waiting.add(task)
        task.add_done_callback(found.waiting.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                task.add_done_callback(_forgotten)
                raise
            # The generator was closed, which cancelled the waiting work; the caller itself was not cancelled.
            raise Unavailable(f"experiment {experiment}: its generator was closed meanwhile; open it again") from None

    async def _in_turn(
        self,
        experiment: str,
        found: _Open,
        work: Callable[[], T],
        what: str,
        doing: Callable[[], object] | None,
        seconds: float,
    ) -> T:
        async with found.turn:
            found.under_way = asyncio.current_task()
            try:
                return await self._threads.finish(self._threads.start(work), seconds, doing)
            except WorkTimeout as error:
                found.end_process()
                if found.generator is not None:
                    raise found.generator.give_up(f"{what} took longer than {seconds:g} s") from error
                raise GeneratorFailed(f"experiment {experiment}: {what} took longer than {seconds:g} s") from error
            finally:
                found.under_way = None
                if found.closed or (found.generator is not None and found.generator.failed):
                    found.end_process()


def _forgotten(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of a task that nobody awaits, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()


def _not_open(experiment: str) -> NotFound:
    return NotFound(
        f"experiment {experiment}: its generator is not open here (the service may have restarted); "
        "open it again with its recorded calls"
    )


def _require(field: str, value: str) -> None:
    if not value:
        raise InvalidInput(f"{field}: needs an id, found nothing")
