"""Generators of third parties, each in a process that the generator service starts. Its faults do not affect the service."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any, Final, cast, get_args

from hopyard._common.plugins import GENERATORS, is_built_in
from hopyard._runtime.processes.process_limits import ResourceLimits
from hopyard._runtime.processes.worker_client import WorkerEnded, WorkerProcess, aside
from hopyard.errors import InvalidInput
from hopyard.generator import Generator, Reads, Result
from hopyard.space import Configuration
from hopyard.spec import ExperimentSpec, canonical_json
from hopyard.spec.models import GeneratorSpec
from hopyard_hpgen.experiment_generator import CallFailed, GeneratorEnded

MAX_ANSWER_BYTES: Final = 1_000_000
"""Maximum size in bytes of an answer of the process."""


def runs_inline(generator: GeneratorSpec) -> bool:
    """Return True if a generator runs inside the service: it is built in, or the experiment file has `inline: true`."""
    return generator.inline or is_built_in(GENERATORS, generator.name)


class GeneratorProcess:
    """A process for one generator. It runs until `close` is called, and is killed if it exceeds a limit of its resources.

    `ask` and the constructor block while the process starts or answers. They are called on any thread except that of the event loop.

    Args:
        generator: The name of the generator.
        limits: The limits of its resources.
        loop: The event loop that serves the process.
    """

    def __init__(self, generator: str, limits: ResourceLimits, loop: asyncio.AbstractEventLoop) -> None:
        self._who = f"generator {generator}"
        self._limits = limits
        self._loop = loop
        self._closing = asyncio.Event()
        self._worker: Future[WorkerProcess] = Future()
        self._running = asyncio.run_coroutine_threadsafe(self._run(), loop)

    def ask(self, wanted: Mapping[str, Any], while_: str) -> dict[str, Any]:
        """Send a request to the process and return its answer. There is no time limit: `close` ends the call.

        Args:
            wanted: The request, as a JSON object.
            while_: What the process does, for the error message "... was killed by signal 9 in create('a')".

        Raises:
            GeneratorEnded: The process ended, could not be started, or was ended by `close`.
            InvalidInput: The process answered with an error, or its answer is invalid.
        """
        return asyncio.run_coroutine_threadsafe(self._ask(wanted, while_), self._loop).result()

    async def _ask(self, wanted: Mapping[str, Any], while_: str) -> dict[str, Any]:
        worker = await asyncio.wrap_future(self._worker)
        asking = asyncio.create_task(worker.ask(wanted, None, "to answer", while_))
        closing = asyncio.create_task(self._closing.wait())
        try:
            await asyncio.wait({asking, closing}, return_when=asyncio.FIRST_COMPLETED)
            if self._closing.is_set():
                raise GeneratorEnded(f"{self._who}: its process was ended {while_}")
            return asking.result()
        except WorkerEnded as error:
            raise GeneratorEnded(str(error)) from error
        finally:
            asking.cancel()
            closing.cancel()
            await asyncio.gather(asking, closing, return_exceptions=True)

    def close(self) -> None:
        """End the process with all that it has started. A call of `ask` that waits raises an error at once. Does not block."""
        self._loop.call_soon_threadsafe(self._closing.set)

    async def ended(self) -> None:
        """Wait, in the event loop, until the process with all that it has started has ended."""
        await asyncio.wait([asyncio.wrap_future(self._running)])

    async def _run(self) -> None:
        try:
            async with aside(
                "hopyard_hpgen.process", self._who, priority=0, most_bytes=MAX_ANSWER_BYTES, limits=self._limits
            ) as worker:
                self._worker.set_result(worker)
                await self._closing.wait()
        except OSError as error:
            if self._worker.done():
                raise
            text = f"{self._who}: its process cannot be started: {error.strerror or error}"
            self._worker.set_exception(GeneratorEnded(text))
        finally:
            if not self._worker.done():  # The service ends while the process starts.
                self._worker.set_exception(GeneratorEnded(f"{self._who}: its process was ended"))


class IsolatedGenerator(Generator):
    """Delegates to the generator of an experiment in a process.

    Args:
        spec: The specification of the experiment, which names the generator.
        process: A new process, in which the generator is created.

    Raises:
        InvalidInput: The generator does not exist, rejects a parameter, or does not support the space.
        GeneratorEnded: The process ended before the generator was created.
    """

    def __init__(self, spec: ExperimentSpec, process: GeneratorProcess) -> None:
        super().__init__(spec.search_space, spec.generator.seed)
        self._process = process
        said = process.ask({"spec": canonical_json(spec), "path": sys.path}, "while it was made")
        size, reads = said.get("size"), said.get("reads")
        name = spec.generator.name
        if size is not None and (type(size) is not int or not 0 <= size < 2**63):
            raise InvalidInput(f"generator {name}: size is {size!r:.80}, allowed is an integer of 0 or more, or None")
        if reads not in get_args(Reads):
            raise InvalidInput(f"generator {name}: reads is {reads!r:.80}, allowed is one of {get_args(Reads)}")
        self._size: int | None = size
        self._reads: Reads = cast("Reads", reads)

    @property
    def size(self) -> int | None:
        """The total number of configurations that the generator proposes; None if it is infinite or unknown."""
        return self._size

    @property
    def reads(self) -> Reads:
        """The results that the generator learns from: "nothing", "finals" (of ended jobs), or "reports" (also intermediate ones)."""
        return self._reads

    def create(self, job: str, ordinal: int) -> Configuration | None:
        """Return the configuration that the generator proposes for a job; None: it is exhausted.

        Raises:
            CallFailed: The generator raised an exception, or its answer is invalid.
            GeneratorEnded: Its process ended.
        """
        said = self._call(f"in create({job!r})", call="create", job=job, ordinal=ordinal)
        # The caller checks the proposal, whatever its type is.
        proposed: Configuration | None = said.get("configuration")
        return proposed

    def report(self, job: str, position: int, metrics: Mapping[str, float]) -> None:
        """Report an intermediate result to the generator. Errors as in `create`."""
        self._call(f"in report({job!r}, {position})", call="report", job=job, position=position, metrics=dict(metrics))

    def report_final(self, job: str, result: Result) -> None:
        """Report the result of an ended job to the generator. Errors as in `create`."""
        told = asdict(result) | {"outcome": result.outcome.value, "metrics": dict(result.metrics)}
        self._call(f"in report_final({job!r})", call="report_final", job=job, result=told)

    def _call(self, while_: str, **wanted: Any) -> dict[str, Any]:
        try:
            said = self._process.ask(wanted, while_)
        except InvalidInput as error:
            raise CallFailed(f"has no valid answer: {error}") from error
        if "raised" in said:
            raise CallFailed(f"raised {said['raised']}", str(said.get("traceback", "")))
        return said
