"""The client of hpgen, the generator service: requests configurations and sends results to the generators.

The state of a generator follows from the sequence of its calls: requests for configurations, and results. The core
records this sequence, so that a new generator can be brought to the same state.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from hopyard._net.rpc import Backoff
from hopyard._net.rpc.enums import GENERATOR_READS, JOB_STATES
from hopyard._net.rpc.values import hyperparameters_from_proto, hyperparameters_to_proto
from hopyard._net.server import Background
from hopyard.errors import Aborted, Conflict, HopyardError, InvalidInput, NotFound, TimedOut, Unavailable
from hopyard.policy.vocabulary import ExperimentId, Hyperparameters
from hopyard.v1 import hpgen_pb2
from hopyard_engine.core import Core
from hopyard_engine.core.effects import AskOutside
from hopyard_engine.core.events import Answered, Event
from hopyard_engine.core.handlers.commands import CREATE
from hopyard_engine.core.state.experiment import GeneratorCall
from hopyard_scheduler.experiments.program import renamed

if TYPE_CHECKING:
    from hopyard.v1 import hpgen_pb2_grpc
    from hopyard_engine.core.state.experiment import Experiment
    from hopyard_engine.core.state.stream import Stream

_LOG = logging.getLogger(__name__)

_AT_ONCE: Final = 1000
"""Maximum number of recorded calls in one message."""

MAX_RESTARTS: Final = 2
"""Maximum number of restarts of a generator whose process ended during the same request. Then the request fails."""

MAX_ERROR: Final = 2000
"""Maximum number of characters of an error."""

_FIRST_SECONDS: Final = 120.0
"""Time limit in seconds to open the generator of a new experiment. hpgen itself limits the time to start and create it."""

_PATIENCE: Final = 600.0
"""Time limit in seconds for a message of recorded calls. hpgen itself limits the time of a single call."""


class _Asked:
    """The queued requests of an experiment and the progress of its generator.

    Attributes:
        queue: Requests in order; None: the experiment has ended.
        fresh: By ticket: answers (a configuration; None: there are no more) that the core may not have handled yet.
        told: The number of calls that the generator is known to have received, from the beginning of the recorded
            sequence.
        spec: The specification with which the generator was opened, as JSON; empty: that of the experiment's creation.
        known: Whether the state of the open generator follows from the recorded calls, as far as `told` says. If not, it is closed
            before the next request, and opened again with the recorded calls.
        failed: The request that failed last; None: none. Later requests are dropped while it is unanswered: the core repeats it with
            them, because the generator must get its calls in the recorded order.
    """

    def __init__(self, *, known: bool) -> None:
        self.queue: asyncio.Queue[AskOutside | None] = asyncio.Queue()
        self.fresh: dict[str, Hyperparameters | None] = {}
        self.told = 0
        self.spec = ""
        self.known = known
        self.failed: AskOutside | None = None


class Generators:
    """Calls the generator service (hpgen), with one call at a time per experiment and in the order that the core has recorded.

    Results are sent to a generator immediately before the next request for a configuration, because a generator uses
    them only to propose configurations.

    Args:
        stub: Client of the generator service.
        background: Runs one task for each experiment.
        clock: Returns seconds since the Unix epoch.

    Attributes:
        restored: Whether the database was restored from a backup, so that open generators may have received calls that the core does
            not have. They are rebuilt from the recorded calls.
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
        self._asked: dict[ExperimentId, _Asked] = {}
        self.restored = False

    def attach(self, core: Core, post: Callable[[Event], None]) -> None:
        """Connect the core, which has the recorded calls, and the event queue. It must be called before `ask`.

        Args:
            core: The state machine of the engine.
            post: Adds an event to the queue; receives the answers.
        """
        self._core = core
        self._post = post

    async def validate(self, experiment: ExperimentId, spec_json: str) -> Literal["nothing", "finals", "reports"]:
        """Open the generator of a new experiment, so that errors are found before the experiment exists. It stays open.

        Args:
            experiment: The id of the experiment.
            spec_json: Its specification as JSON.

        Returns:
            Which results the generator reads: none, final results only, or all reports.

        Raises:
            InvalidInput: The generator is unknown, does not accept its parameters or the space, or ended its process.
            Unavailable: The generator service is unavailable.
        """
        request = hpgen_pb2.OpenGeneratorRequest(experiment=experiment, spec_json=spec_json)
        try:
            return GENERATOR_READS.from_proto((await self._stub.OpenGenerator(request, timeout=_FIRST_SECONDS)).reads)
        except Aborted as error:
            raise InvalidInput(str(error)) from error

    def ask(self, question: AskOutside) -> None:
        """Queue a request for a configuration behind the earlier requests of its experiment.

        The answer, or the error if the generator service refuses the request, is posted as an event.

        Args:
            question: The request, as an effect of the core.
        """
        name = question.experiment
        if name not in self._asked:
            asked = self._asked[name] = _Asked(known=not self.restored)
            self._background.start(self._serve(name, asked), name=f"generator of {name}")
        self._asked[name].queue.put_nowait(question)

    def close(self, experiment: ExperimentId) -> None:
        """Close the generator of an ended experiment after its queued requests. A later request opens the generator again."""
        asked = self._asked.pop(experiment, None)
        if asked is not None:
            asked.queue.put_nowait(None)
        else:  # Only an earlier scheduler has asked it.
            self._background.start(self.discard(experiment), name=f"close the generator of {experiment}")

    def abandon(self, experiment: ExperimentId) -> None:
        """Close the generator that `validate` has opened for an experiment, unless the experiment exists now."""
        if self._core.find(experiment) is None:
            self._background.start(self.discard(experiment), name=f"close the generator of {experiment}")

    async def discard(self, experiment: ExperimentId) -> None:
        """Close the generator of an experiment, if it is open. A failure is only logged."""
        try:
            await self._stub.CloseGenerator(hpgen_pb2.CloseGeneratorRequest(experiment=experiment))
        except HopyardError as error:
            _LOG.warning("the generator of %s stays open: %s", experiment, error)

    async def _serve(self, name: ExperimentId, asked: _Asked) -> None:
        while (question := await asked.queue.get()) is not None:
            if asked.failed is not None and not self._is_open(asked.failed):
                asked.failed = None  # Its experiment has ended since.
            if not self._is_open(question) or (asked.failed is not None and _is_later(question, asked.failed)):
                continue
            answered = await self._persist(question, asked)
            asked.failed = question if answered.error else None
            if not answered.error:
                asked.fresh[answered.ticket] = answered.result
            self._post(answered)
        await self.discard(name)

    async def _persist(self, question: AskOutside, asked: _Asked) -> Answered:
        """Repeat a request with backoff until the generator service (hpgen) answers or refuses it.

        The answer or the error is returned as an event. If hpgen or the process of the generator was restarted since the last
        request, it first gets all recorded calls again. After an error the generator is closed, so that the next request opens it
        again, also if it comes from another scheduler.

        Args:
            question: The request.
            asked: The progress of the experiment's generator.
        """
        failures, restarts, backoff = 0, 0, Backoff()
        while True:
            try:
                return self._answered(question, await self._attempt(question, asked), "")
            except (Unavailable, TimedOut) as error:
                wait = backoff.wait(failures, self._rng)
                failures += 1
                _LOG.warning("hpgen is away (%s), trying again in %.1f s", error, wait)
                await asyncio.sleep(wait)
            except HopyardError as error:
                asked.known = False
                if not isinstance(error, Aborted) or restarts == MAX_RESTARTS:
                    await self.discard(question.experiment)
                    return self._answered(question, None, str(error)[:MAX_ERROR])
                wait = backoff.wait(restarts, self._rng)
                restarts += 1
                _LOG.warning("%s; restart %d of %d in %.1f s", error, restarts, MAX_RESTARTS, wait)
                await asyncio.sleep(wait)

    async def _attempt(self, question: AskOutside, asked: _Asked) -> Hyperparameters | None:
        stream, experiment = self._found(question)
        for ticket in [ticket for ticket in asked.fresh if ticket not in stream.asks]:
            del asked.fresh[ticket]
        calls, after = experiment.generator_calls, question.payload["after"]
        spec = renamed(experiment.payload["spec"], experiment.settings.metric) if experiment.changed else ""
        if spec and spec != (asked.spec or experiment.payload["spec"]):  # A generator cannot change its metric.
            await self._stub.CloseGenerator(hpgen_pb2.CloseGeneratorRequest(experiment=question.experiment))
            asked.spec, asked.told = spec, 0
        elif not asked.known:
            await self._stub.CloseGenerator(hpgen_pb2.CloseGeneratorRequest(experiment=question.experiment))
        asked.known = True
        news = [call for call in calls[max(asked.told, experiment.told_generator) : after] if call.kind != "create"]
        try:
            if news:
                await self._tell(question, news)
            proposed = await self._create(question)
        except NotFound:
            await self._tell(question, taken(calls[:after], asked.fresh), asked.spec or experiment.payload["spec"])
            proposed = await self._create(question)
        asked.told = after + 1
        return proposed

    async def _create(self, question: AskOutside) -> Hyperparameters | None:
        request = hpgen_pb2.CreateJobRequest(experiment=question.experiment, job=question.payload["job"])
        response = await self._stub.CreateJob(request)
        return None if response.exhausted else hyperparameters_from_proto(response.hyperparameters)

    async def _tell(self, question: AskOutside, calls: Sequence[GeneratorCall], spec_json: str = "") -> None:
        """Send recorded calls to a generator.

        Args:
            question: The request that follows, which names the experiment.
            calls: The calls, in order.
            spec_json: The specification as JSON, to open a new generator; empty: the generator is open.

        Raises:
            HopyardError: The generator service refused the calls, or is unavailable.
        """
        for start in range(0, max(len(calls), 1), _AT_ONCE):
            request = hpgen_pb2.OpenGeneratorRequest(
                experiment=question.experiment,
                spec_json=spec_json,
                calls=[_recorded(call) for call in calls[start : start + _AT_ONCE]],
                continued=not spec_json or start > 0,
                more=bool(spec_json) and start + _AT_ONCE < len(calls),
            )
            await self._stub.OpenGenerator(request, timeout=_PATIENCE)

    def _is_open(self, question: AskOutside) -> bool:
        """Return True if the core still waits for the answer to the request `question`.

        When an experiment is stopped, thousands of requests may have become unneeded.
        """
        found = self._core.find(question.experiment)
        return found is None or question.ticket in found[0].asks

    def _found(self, question: AskOutside) -> tuple[Stream, Experiment]:
        found = self._core.find(question.experiment)
        if found is None:  # The experiment has ended and left the core while hpgen was unavailable.
            raise Conflict(f"experiment {question.experiment} is over")
        return found

    def _answered(self, question: AskOutside, result: object, error: str) -> Answered:
        return Answered(self._clock(), question.stream, question.ticket, result, error)


def _is_later(question: AskOutside, other: AskOutside) -> bool:
    """Return whether a request is after another one of the same experiment in the recorded sequence."""
    return bool(question.payload["after"] > other.payload["after"])


def taken(calls: Sequence[GeneratorCall], fresh: Mapping[str, Hyperparameters | None]) -> list[GeneratorCall]:
    """Return the answered calls, including calls whose answers the core has not handled yet.

    Unanswered calls did not change the generator and are omitted.

    Args:
        calls: Recorded calls of an experiment, in order.
        fresh: Answers by ticket that the core may not have handled yet.
    """
    known = [
        replace(call, hyperparameters=fresh[CREATE + call.job], answered=True)
        if not call.answered and CREATE + call.job in fresh
        else call
        for call in calls
    ]
    return [call for call in known if call.answered]


def _recorded(call: GeneratorCall) -> hpgen_pb2.GeneratorCall:
    given = hyperparameters_to_proto(call.hyperparameters) if call.hyperparameters is not None else None
    match call.kind:
        case "create":
            return hpgen_pb2.GeneratorCall(create=hpgen_pb2.RecordedCreate(job=call.job, hyperparameters=given))
        case "report":
            report = hpgen_pb2.ReportPerformanceRequest(job=call.job, position=call.position, metrics=call.metrics)
            return hpgen_pb2.GeneratorCall(report=report)
    final = hpgen_pb2.ReportFinalPerformanceRequest(
        job=call.job,
        metrics=call.metrics,
        position=call.position,
        outcome=JOB_STATES.to_proto(call.outcome),
        hyperparameters=given,
    )
    return hpgen_pb2.GeneratorCall(report_final=final)
