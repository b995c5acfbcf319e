"""What the core asks of the outside: configurations of the generator, later predictions and plans."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from hopyard.errors import HopyardError, NotFound, TimedOut, Unavailable
from hopyard.policy.vocabulary import Hyperparameters
from hopyard.rpc import Backoff
from hopyard.rpc.values import hyperparameters_from_proto, hyperparameters_to_proto
from hopyard.serving import Background
from hopyard.v1 import hpgen_pb2
from hopyard_scheduler.core import Core
from hopyard_scheduler.core.commands import CREATE
from hopyard_scheduler.core.effects import AskOutside, FinalPerformance
from hopyard_scheduler.core.events import Answered, Event
from hopyard_scheduler.core.model import GeneratorCall

if TYPE_CHECKING:
    from hopyard.v1 import hpgen_pb2_grpc

_LOG = logging.getLogger(__name__)

Question = AskOutside | FinalPerformance


class Generators:
    """Asks hpgen, one call at a time for each experiment and in the core's order: a generator is a function of its calls.

    Args:
        stub: The generator service.
        background: Owns the tasks, one for each experiment.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        stub: hpgen_pb2_grpc.HyperparameterGeneratorServiceAsyncStub,
        background: Background,
        clock: Callable[[], float],
    ) -> None:
        self._stub = stub
        self._background = background
        self._clock = clock
        self._rng = random.Random()
        self._queues: dict[str, asyncio.Queue[Question | None]] = {}
        self._fresh: dict[str, dict[str, Hyperparameters | None]] = {}  # Answers that the core may not have taken yet.

    def attach(self, core: Core, post: Callable[[Event], None]) -> None:
        """Says where answers go, and where the recorded calls are."""
        self._core = core
        self._post = post

    async def validate(self, experiment: str, spec_json: str) -> None:
        """Opens an experiment's generator, so that what is wrong with it is said before the experiment exists.

        Raises:
            InvalidInput: Unknown generator, or parameters or a space that it does not take.
            Unavailable: hpgen is not there.
        """
        await self._stub.OpenGenerator(hpgen_pb2.OpenGeneratorRequest(experiment=experiment, spec_json=spec_json))

    def ask(self, question: Question) -> None:
        """Queues a call behind the earlier ones of its experiment."""
        name = question.member
        if name not in self._queues:
            self._queues[name] = asyncio.Queue()
            self._background.start(self._serve(name, self._queues[name]), name=f"generator of {name}")
        self._queues[name].put_nowait(question)

    def close(self, experiment: str) -> None:
        """An experiment is over: its generator is closed behind what is queued. One that is revived opens it again."""
        queue = self._queues.pop(experiment, None)
        if queue is not None:
            queue.put_nowait(None)

    async def _serve(self, name: str, queue: asyncio.Queue[Question | None]) -> None:
        fresh = self._fresh[name] = {}
        while (question := await queue.get()) is not None:
            answered = await self._persist(question)
            if answered is not None:
                if not answered.error:
                    fresh[answered.ticket] = answered.result
                self._post(answered)
        if self._fresh.get(name) is fresh:  # Else it was revived meanwhile.
            del self._fresh[name]
        try:
            await self._stub.CloseGenerator(hpgen_pb2.CloseGeneratorRequest(experiment=name))
        except HopyardError as error:
            _LOG.warning("the generator of %s stays open: %s", name, error)

    async def _persist(self, question: Question) -> Answered | None:
        """Makes a call until it is answered: an absent service is waited for, a forgetful one gets its calls again."""
        failures, backoff = 0, Backoff()
        while True:
            try:
                return await self._attempt(question)
            except (Unavailable, TimedOut) as error:
                wait = backoff.wait(failures, self._rng)
                failures += 1
                _LOG.warning("hpgen is away (%s), trying again in %.1f s", error, wait)
                await asyncio.sleep(wait)
            except HopyardError as error:
                if isinstance(question, AskOutside):
                    return self._answered(question, None, str(error))
                _LOG.error("the generator refused the result of job %s: %s", question.job, error)
                return None

    async def _attempt(self, question: Question) -> Answered | None:
        try:
            return await self._call(question)
        except NotFound:
            await self._open(question)
            return await self._call(question)

    async def _call(self, question: Question) -> Answered | None:
        if isinstance(question, FinalPerformance):
            request = hpgen_pb2.ReportFinalPerformanceRequest(
                experiment=question.member, job=question.job, metrics=question.metrics
            )
            await self._stub.ReportFinalPerformance(request)
            return None
        job = question.payload["job"]
        response = await self._stub.CreateJob(hpgen_pb2.CreateJobRequest(experiment=question.member, job=job))
        proposed = None if response.exhausted else hyperparameters_from_proto(response.hyperparameters)
        return self._answered(question, proposed, "")

    async def _open(self, question: Question) -> None:
        """Opens the generator again with the calls that the journal recorded, in their order, up to a question."""
        name = question.member
        found = self._core.find(name)
        assert found is not None, f"a question of {name}, which the core does not have"
        x, member = found
        fresh = self._fresh[name]
        for ticket in [ticket for ticket in fresh if ticket not in x.asks]:
            del fresh[ticket]
        request = hpgen_pb2.OpenGeneratorRequest(
            experiment=name,
            spec_json=member.payload["spec"],
            calls=[_recorded(name, call) for call in _before(question, member.generator_calls, fresh)],
        )
        await self._stub.OpenGenerator(request)

    def _answered(self, question: AskOutside, result: object, error: str) -> Answered:
        return Answered(self._clock(), question.experiment, question.ticket, result, error)


def _before(
    question: Question, calls: list[GeneratorCall], fresh: Mapping[str, Hyperparameters | None]
) -> list[GeneratorCall]:
    """The calls that a generator took before a question, with answers on their way to the core; later ones are behind it."""
    final = isinstance(question, FinalPerformance)
    job = question.job if isinstance(question, FinalPerformance) else question.payload["job"]
    own = next((n for n, c in enumerate(calls) if c.job == job and (c.kind == "final") == final), len(calls))
    taken = [
        replace(call, hyperparameters=fresh[CREATE + call.job], answered=True)
        if not call.answered and CREATE + call.job in fresh
        else call
        for call in calls[:own]
    ]
    return [call for call in taken if call.answered]


def _recorded(name: str, call: GeneratorCall) -> hpgen_pb2.GeneratorCall:
    if call.kind == "final":
        final = hpgen_pb2.ReportFinalPerformanceRequest(experiment=name, job=call.job, metrics=call.metrics)
        return hpgen_pb2.GeneratorCall(report_final=final)
    create = hpgen_pb2.RecordedCreate(job=call.job)
    if call.hyperparameters is not None:
        create.hyperparameters.CopyFrom(hyperparameters_to_proto(call.hyperparameters))
    return hpgen_pb2.GeneratorCall(create=create)


def unanswerable(question: AskOutside, at: float) -> Answered:
    """The answer to a question that nothing here can answer."""
    text = f"nothing answers questions of kind {question.kind!r}: no such service is configured"
    return Answered(at, question.experiment, question.ticket, None, text)
