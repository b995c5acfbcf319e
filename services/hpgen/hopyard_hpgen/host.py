"""The open generators of all experiments: each is called by one thread at a time, and given up when it takes too long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from hopyard._net.server.killable_threads import Threads, TooLong
from hopyard.errors import Conflict, Exhausted, InvalidInput, NotFound, Unavailable
from hopyard.generator import Result
from hopyard.space import Configuration
from hopyard.spec import ExperimentSpec
from hopyard_hpgen.call_log import Call
from hopyard_hpgen.experiment_generator import ExperimentGenerator, GeneratorFailed, GeneratorTerms

MAX_OPEN: Final = 1000
"""Most generators that are open at once."""

DEFAULT_SECONDS: Final = 20.0
"""How long a generator may take over a call."""

T = TypeVar("T")


class _Recorded:
    """Recorded calls on their way: `step` is another object for each, since each may take its time."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls
        self.step = object()

    def __iter__(self) -> Iterator[Call]:
        for call in self._calls:
            self.step = object()
            yield call


@dataclass(eq=False)
class _Open:
    """A generator and its calls, which take turns in the order they came; a slow one holds up only its experiment.

    Only the call whose turn it is touches the generator. It is None until the first call, which makes it, is done.
    While it is `partial` it waits for further recorded calls, and for nothing else.
    """

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    generator: ExperimentGenerator | None = None
    partial: bool = False
    waiting: set[asyncio.Task[Any]] = field(default_factory=set)
    under_way: asyncio.Task[Any] | None = None


class GeneratorHost:
    """What the service does, by experiment. Use it from one event loop; `close` it at the end.

    Args:
        seconds: How long a generator may take over a call (> 0). One that takes longer is given up: it answers no more until it
            is opened again, and its thread is told to end.
    """

    def __init__(self, seconds: float = DEFAULT_SECONDS) -> None:
        """Start without generators."""
        self._seconds = seconds
        self._threads = Threads("generator")
        self._open = dict[str, _Open]()
        self._closed = False

    async def open(
        self, experiment: str, spec: ExperimentSpec, calls: Sequence[Call] = (), *, more: bool = False
    ) -> GeneratorTerms:
        """Make an experiment's generator, or find it; answers what there is to know of it.

        With `calls` the generator is rebuilt from them, also if it is open: the record is the truth, and what a caller
        asked for without recording it will be asked for again. Without `calls` an open generator stays as it is,
        unless it has failed. With `more`, further recorded calls follow (`go_on`), and it takes no others until the last.

        Raises:
            InvalidInput: an empty id, or a generator that cannot be made (`make_generator`).
            Conflict: it is open for another specification, or the recorded calls do not come out as recorded.
            GeneratorFailed: it took too long.
            Exhausted: too many are open.
            Unavailable: the service stops.
        """
        _require("experiment", experiment)
        found = self._open.get(experiment) or self._add(experiment)
        recorded = _Recorded(calls)

        def build() -> GeneratorTerms:
            current = found.generator
            if current is not None and not current.is_for(spec):
                raise Conflict(
                    f"experiment {experiment}: its generator is open with another space, name, seed or parameters; "
                    "close it first"
                )
            if current is None or current.failed or calls or found.partial:
                current = found.generator = ExperimentGenerator(experiment, spec, recorded)
                found.partial = more
            return current.terms

        what = f"generator {spec.generator.name}: open"
        try:
            return await self._on(experiment, found, build, what, lambda: recorded.step)
        finally:
            if found.generator is None and self._open.get(experiment) is found:
                await self.forget(experiment)

    async def go_on(self, experiment: str, calls: Sequence[Call], *, more: bool = False) -> GeneratorTerms:
        """Make recorded calls on a generator as it stands: results that it is told, or the rest of an earlier life.

        Raises:
            NotFound: the experiment's generator is not there.
            Conflict: the recorded calls do not come out as recorded.
            GeneratorFailed: the generator broke its promises, or a call took too long.
        """
        found, recorded = self._find(experiment), _Recorded(calls)

        def work() -> GeneratorTerms:
            if found.generator is None:
                raise _not_open(experiment)
            found.generator.make_again(recorded)
            found.partial = more
            return found.generator.terms

        return await self._on(experiment, found, work, "recorded calls", lambda: recorded.step)

    async def create_job(self, experiment: str, job: str) -> Configuration | None:
        """The configuration of a job (None: exhausted); see `ExperimentGenerator.create_job`.

        Raises:
            NotFound: the experiment's generator is not open.
        """
        _require("job", job)
        return await self._call(experiment, f"create({job!r})", lambda generator: generator.create_job(job))

    async def report_performance(self, experiment: str, job: str, position: int, metrics: Mapping[str, float]) -> None:
        """Tell an intermediate result; see `ExperimentGenerator.report_performance`. NotFound as in `create_job`."""
        _require("job", job)
        what = f"report({job!r}, {position})"
        await self._call(experiment, what, lambda generator: generator.report_performance(job, position, metrics))

    async def report_final_performance(self, experiment: str, job: str, result: Result) -> None:
        """Tell how a job ended; see `ExperimentGenerator.report_final_performance`. NotFound as in `create_job`."""
        _require("job", job)
        what = f"report_final({job!r})"
        await self._call(experiment, what, lambda generator: generator.report_final_performance(job, result))

    async def forget(self, experiment: str) -> None:
        """Close an experiment's generator; nothing happens if it is not open. Waiting calls are dropped."""
        _require("experiment", experiment)
        if (found := self._open.pop(experiment, None)) is not None:
            for call in found.waiting - {found.under_way}:
                call.cancel()

    async def close(self) -> None:
        """Close all; waiting calls are dropped, those under way are given up. Safe to call twice."""
        self._closed = True
        while self._open:
            _, found = self._open.popitem()
            for call in found.waiting:
                call.cancel()
            await asyncio.gather(*found.waiting, return_exceptions=True)
        self._threads.close()

    def _add(self, experiment: str) -> _Open:
        if self._closed:
            raise Unavailable(f"experiment {experiment}: the generator service stops")
        if len(self._open) >= MAX_OPEN:
            raise Exhausted(f"experiment {experiment}: {MAX_OPEN} generators are open, which is the limit; close some")
        found = self._open[experiment] = _Open()
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
    ) -> T:
        """Does work when its turn comes. A caller that leaves changes nothing: it is done all the same."""
        task = asyncio.create_task(self._in_turn(experiment, found, work, what, doing))
        found.waiting.add(task)
        task.add_done_callback(found.waiting.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                task.add_done_callback(_forgotten)
                raise
            # Not the caller was cancelled, but the work that waited for its turn.
            raise Unavailable(f"experiment {experiment}: its generator was closed meanwhile; open it again") from None

    async def _in_turn(
        self, experiment: str, found: _Open, work: Callable[[], T], what: str, doing: Callable[[], object] | None
    ) -> T:
        async with found.turn:
            found.under_way = asyncio.current_task()
            try:
                return await self._threads.finish(self._threads.start(work), self._seconds, doing)
            except TooLong as error:
                if found.generator is not None:
                    raise found.generator.give_up(f"{what} took longer than {self._seconds:g} s") from error
                raise GeneratorFailed(
                    f"experiment {experiment}: {what} took longer than {self._seconds:g} s"
                ) from error
            finally:
                found.under_way = None


def _forgotten(task: asyncio.Task[Any]) -> None:
    """Nobody waits for the outcome."""
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
