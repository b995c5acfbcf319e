"""The open generators of all experiments, each called from one thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

from hopyard.errors import Conflict, Exhausted, InvalidInput, NotFound, Unavailable
from hopyard.space import Configuration
from hopyard.spec import ExperimentSpec
from hopyard_hpgen.domain import ExperimentGenerator
from hopyard_hpgen.records import Call

MAX_OPEN: Final = 1000
"""Most generators that are open at once."""

T = TypeVar("T")


@dataclass(eq=False)
class _Open:
    """A generator and its thread: calls take turns in the order they came; a slow one holds up only its experiment.

    Only work on the thread touches the generator. It is None until the first work, which makes it, is done.
    """

    thread: ThreadPoolExecutor
    generator: ExperimentGenerator | None = None


class GeneratorHost:
    """What the service does, by experiment. Use it from one event loop; `close` it at the end."""

    def __init__(self) -> None:
        """Start without generators."""
        self._open = dict[str, _Open]()
        self._closed = False

    async def open(self, experiment: str, spec: ExperimentSpec, calls: Sequence[Call] = ()) -> int | None:
        """Make an experiment's generator, or find it; answers how many configurations there are (None: endless).

        With `calls` the generator is rebuilt from them, also if it is open: the record is the truth, and what a caller
        asked for without recording it will be asked for again. Without `calls` an open generator stays as it is,
        unless it has failed.

        Raises:
            InvalidInput: an empty id, or a generator that cannot be made (`make_generator`).
            Conflict: it is open for another specification, or the recorded calls do not come out as recorded.
            Exhausted: too many are open.
            Unavailable: the service stops.
        """
        _require("experiment", experiment)
        found = self._open.get(experiment) or self._add(experiment)

        def build() -> int | None:
            current = found.generator
            if current is not None and not current.is_for(spec):
                raise Conflict(
                    f"experiment {experiment}: its generator is open with another space, name, seed or parameters; "
                    "close it first"
                )
            if current is None or current.failed or calls:
                current = found.generator = ExperimentGenerator(experiment, spec, calls)
            return current.size

        try:
            return await _on(experiment, found, build)
        finally:
            if found.generator is None and self._open.get(experiment) is found:
                await self.forget(experiment)

    async def create_job(self, experiment: str, job: str) -> Configuration | None:
        """The configuration of a job (None: exhausted); see `ExperimentGenerator.create_job`.

        Raises:
            NotFound: the experiment's generator is not open.
        """
        _require("job", job)
        return await self._call(experiment, lambda generator: generator.create_job(job))

    async def report_performance(self, experiment: str, job: str, position: int, metrics: Mapping[str, float]) -> None:
        """Tell an intermediate result; see `ExperimentGenerator.report_performance`. NotFound as in `create_job`."""
        _require("job", job)
        await self._call(experiment, lambda generator: generator.report_performance(job, position, metrics))

    async def report_final_performance(self, experiment: str, job: str, metrics: Mapping[str, float]) -> None:
        """Tell a final result; see `ExperimentGenerator.report_final_performance`. NotFound as in `create_job`."""
        _require("job", job)
        await self._call(experiment, lambda generator: generator.report_final_performance(job, metrics))

    async def forget(self, experiment: str) -> None:
        """Close an experiment's generator; nothing happens if it is not open. Waiting calls are dropped."""
        _require("experiment", experiment)
        if (found := self._open.pop(experiment, None)) is not None:
            found.thread.shutdown(wait=False, cancel_futures=True)

    async def close(self) -> None:
        """Close all; calls under way are awaited, waiting ones are dropped. Safe to call twice."""
        self._closed = True
        while self._open:
            _, found = self._open.popitem()
            await asyncio.to_thread(found.thread.shutdown, wait=True, cancel_futures=True)

    def _add(self, experiment: str) -> _Open:
        if self._closed:
            raise Unavailable(f"experiment {experiment}: the generator service stops")
        if len(self._open) >= MAX_OPEN:
            raise Exhausted(f"experiment {experiment}: {MAX_OPEN} generators are open, which is the limit; close some")
        # Named without the id: it is a stranger's text.
        found = self._open[experiment] = _Open(ThreadPoolExecutor(1, thread_name_prefix="generator"))
        return found

    async def _call(self, experiment: str, call: Callable[[ExperimentGenerator], T]) -> T:
        _require("experiment", experiment)
        found = self._open.get(experiment)
        if found is None:
            raise _not_open(experiment)

        def work() -> T:
            if found.generator is None:
                raise _not_open(experiment)
            return call(found.generator)

        return await _on(experiment, found, work)


async def _on(experiment: str, found: _Open, work: Callable[[], T]) -> T:
    future = asyncio.wrap_future(found.thread.submit(work))
    try:
        return await future
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # Not the caller was cancelled, but the work that waited for its turn.
        raise Unavailable(f"experiment {experiment}: its generator was closed meanwhile; open it again") from None


def _not_open(experiment: str) -> NotFound:
    return NotFound(
        f"experiment {experiment}: its generator is not open here (the service may have restarted); "
        "open it again with its recorded calls"
    )


def _require(field: str, value: str) -> None:
    if not value:
        raise InvalidInput(f"{field}: needs an id, found nothing")
