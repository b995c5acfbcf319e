"""What the core asks of the outside: configurations of the generator, later predictions and plans."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from hopyard.errors import HopyardError, NotFound, Unavailable
from hopyard.rpc import Backoff
from hopyard.rpc.values import hyperparameters_from_proto, hyperparameters_to_proto
from hopyard.v1 import hpgen_pb2
from hopyard_scheduler.core.effects import AskOutside, FinalPerformance
from hopyard_scheduler.core.events import Answered
from hopyard_scheduler.core.experiment import Experiment

if TYPE_CHECKING:
    from hopyard.v1 import hpgen_pb2_grpc

_LOG = logging.getLogger(__name__)


class Generators:
    """Asks hpgen, one call at a time for each experiment and in the core's order: a generator is a function of its calls.

    Args:
        stub: The generator service.
        experiment: Finds an experiment of the core by its id.
        submit: Takes the answer as an event.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        stub: hpgen_pb2_grpc.HyperparameterGeneratorServiceAsyncStub,
        experiment: Callable[[str], Experiment],
        submit: Callable[[Answered], None],
        clock: Callable[[], float],
    ) -> None:
        self._stub = stub
        self._experiment = experiment
        self._submit = submit
        self._clock = clock
        self._queues: dict[str, asyncio.Queue[AskOutside | FinalPerformance]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def ask(self, question: AskOutside | FinalPerformance) -> None:
        """Queues a call behind the earlier ones of its experiment."""
        name = question.experiment
        if name not in self._queues:
            self._queues[name] = asyncio.Queue()
            self._tasks[name] = asyncio.create_task(self._serve(name), name=f"generator of {name}")
        self._queues[name].put_nowait(question)

    async def validate(self, experiment: str, spec_json: str) -> None:
        """Opens an experiment's generator, so that what is wrong with it is said before the experiment exists.

        Raises:
            InvalidInput: Unknown generator, or parameters or a space that it does not take.
            Unavailable: hpgen is not there.
        """
        await self._stub.OpenGenerator(hpgen_pb2.OpenGeneratorRequest(experiment=experiment, spec_json=spec_json))

    async def stop(self) -> None:
        """Ends all calls under way."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _serve(self, name: str) -> None:
        queue = self._queues[name]
        while True:
            question = await queue.get()
            answered = await self._persist(question)
            if answered is not None:
                self._submit(answered)

    async def _persist(self, question: AskOutside | FinalPerformance) -> Answered | None:
        """Makes a call until it is answered: an absent service is waited for, a forgetful one is opened again."""
        failures, backoff, rng = 0, Backoff(), random.Random()
        while True:
            try:
                return await self._call(question)
            except NotFound:
                await self._open(question.experiment)
            except Unavailable as error:
                wait = backoff.wait(failures, rng)
                failures += 1
                _LOG.warning("hpgen is away (%s), trying again in %.1f s", error, wait)
                await asyncio.sleep(wait)
            except HopyardError as error:
                if isinstance(question, FinalPerformance):
                    _LOG.error("the generator refused the result of job %s: %s", question.job, error)
                    return None
                return self._answered(question, None, str(error))

    async def _call(self, question: AskOutside | FinalPerformance) -> Answered | None:
        if isinstance(question, FinalPerformance):
            request = hpgen_pb2.ReportFinalPerformanceRequest(
                experiment=question.experiment, job=question.job, metrics=question.metrics
            )
            await self._stub.ReportFinalPerformance(request)
            return None
        job = question.payload["job"]
        response = await self._stub.CreateJob(hpgen_pb2.CreateJobRequest(experiment=question.experiment, job=job))
        proposed = None if response.exhausted else hyperparameters_from_proto(response.hyperparameters)
        return self._answered(question, proposed, "")

    async def _open(self, name: str) -> None:
        """Opens the generator again with the calls that the journal recorded."""
        x = self._experiment(name)
        request = hpgen_pb2.OpenGeneratorRequest(experiment=name, spec_json=x.payload["spec"])
        for job in x.jobs.values():
            if job.generated and job.hyperparameters is not None:
                proposed = hyperparameters_to_proto(job.hyperparameters)
                request.calls.add(create=hpgen_pb2.RecordedCreate(job=job.id, hyperparameters=proposed))
        try:
            await self._stub.OpenGenerator(request)
        except Unavailable as error:
            _LOG.warning("hpgen went away while a generator was opened: %s", error)
            await asyncio.sleep(Backoff().first)

    def _answered(self, question: AskOutside, result: object, error: str) -> Answered:
        return Answered(self._clock(), question.experiment, question.ticket, result, error)


def unanswerable(question: AskOutside, at: float) -> Answered:
    """The answer to a question that nothing here can answer."""
    text = f"nothing answers questions of kind {question.kind!r}: no such service is configured"
    return Answered(at, question.experiment, question.ticket, None, text)
