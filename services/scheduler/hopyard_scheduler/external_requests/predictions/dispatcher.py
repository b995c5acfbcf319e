"""Questions to predictors: put to the nodes that train the jobs, and put again until one has answered.

A question is answered by the node that trains its job or trained it last; while that one is away, by another one, of the
experiment first. It lasts as long as the session over which it went. Answers are equal wherever they are computed, so it does
no harm when two nodes answer: the core takes the first.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from hopyard._net.server import Background
from hopyard.errors import HopyardError, Unavailable
from hopyard.policy.vocabulary import ExperimentId, StreamId
from hopyard.predictor.wire import prediction_from_wire, prediction_to_wire
from hopyard.v1 import resource_manager_pb2
from hopyard_engine.core import Core
from hopyard_engine.core.effects import AskOutside
from hopyard_engine.core.events import Answered, Event
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.curve_history import Histories
from hopyard_scheduler.agents.sessions import Session, Sessions
from hopyard_scheduler.experiments.program import ExperimentProgram
from hopyard_scheduler.external_requests.predictions.prior_curves import PriorCurves
from hopyard_scheduler.external_requests.predictions.probe import Predictors

WINDOW: Final = 16
"""Questions that a node has at a time; further ones wait here, and see the curves as they are when they go."""

NODE_SECONDS: Final = 60.0
"""How long a question waits for a node to be there."""

MAX_ERROR: Final = 2000
"""Characters of an error that are kept."""


class _SessionOver(Exception):
    """The session over which a question went has ended."""


@dataclass(slots=True)
class _Open:
    """A question that waits for its answer.

    Attributes:
        asked: What the core asks.
        task: Puts it.
        session: Over which it went; None: it has not yet.
        answer: What the node says.
    """

    asked: AskOutside
    task: asyncio.Task[None] | None = None
    session: Session | None = None
    answer: asyncio.Future[resource_manager_pb2.NodeAnswer] | None = None


class PredictionDispatcher:
    """Puts questions to nodes.

    Args:
        sessions: The nodes that are there.
        background: Owns the tasks, one for each question.
        clock: Seconds since the epoch.
        earlier: Knows the curves of earlier experiments.
        predictors: Knows what predictors read.
        node_seconds: How long a question waits for a node to be there.
    """

    def __init__(
        self,
        sessions: Sessions,
        background: Background,
        clock: Callable[[], float],
        earlier: PriorCurves,
        predictors: Predictors,
        node_seconds: float = NODE_SECONDS,
    ) -> None:
        self._sessions = sessions
        self._background = background
        self._clock = clock
        self._node_seconds = node_seconds
        self._histories = Histories()
        self._earlier = earlier
        self._predictors = predictors
        self._open: dict[str, _Open] = {}
        self._windows: dict[str, asyncio.Semaphore] = {}
        self._arrival = asyncio.Event()
        self._stopped = False
        sessions.left.append(self._left)

    def attach(
        self, core: Core, post: Callable[[Event], None], program: Callable[[ExperimentId], ExperimentProgram]
    ) -> None:
        """Says where answers go, and where the experiments are."""
        self._core = core
        self._post = post
        self._program = program

    def ask(self, asked: AskOutside) -> None:
        """Puts a question; asked again with the same ticket it goes on as it is."""
        ticket = _ticket(asked.stream, asked.ticket)
        if ticket in self._open or self._stopped:
            return
        question = self._open[ticket] = _Open(asked)
        question.task = self._background.start(self._serve(ticket, question), name=f"prediction {ticket}")

    def withdraw(self, experiment: StreamId, ticket: str) -> None:
        """Nobody waits for an answer any more; what is no open question of ours is left alone."""
        name = _ticket(experiment, ticket)
        question = self._open.pop(name, None)
        if question is None:
            return
        if question.task is not None:
            question.task.cancel()
        if question.session is not None:
            message = resource_manager_pb2.WithdrawQuestion(ticket=name)
            question.session.send(resource_manager_pb2.AgentSessionResponse(withdraw_question=message))

    def answered(self, answer: resource_manager_pb2.NodeAnswer) -> None:
        """A node has answered; what nobody waits for is ignored."""
        question = self._open.get(answer.ticket)
        if question is not None and question.answer is not None and not question.answer.done():
            question.answer.set_result(answer)

    def joined(self) -> None:
        """A node is there that was not."""
        self._arrival.set()
        self._arrival = asyncio.Event()

    def ended(self, experiment: StreamId) -> None:
        """An experiment is over."""
        self._histories.forget(experiment)
        self._earlier.forget(experiment)

    def stop(self) -> None:
        """Nothing more is put: what is open is asked again by the next scheduler."""
        self._stopped = True

    def _left(self, session: Session) -> None:
        """A session is over: what went over it is put again."""
        for question in self._open.values():
            if question.session is session and question.answer is not None and not question.answer.done():
                question.answer.set_exception(_SessionOver())

    async def _serve(self, ticket: str, question: _Open) -> None:
        asked = question.asked
        result: dict[str, Any] | None = None
        error = ""
        try:
            said = await self._put(ticket, question)
            if said.error:
                error = said.error
            else:
                result = prediction_to_wire(prediction_from_wire(json.loads(said.result_json)))
        except HopyardError as problem:
            error = str(problem)
        except ValueError as problem:
            error = f"the node's answer is not JSON: {problem}"
        if self._open.pop(ticket, None) is question:
            self._post(Answered(self._clock(), asked.stream, asked.ticket, result, error[:MAX_ERROR]))

    async def _put(self, ticket: str, question: _Open) -> resource_manager_pb2.NodeAnswer:
        """Puts a question to one node after the other, until one answers.

        Raises:
            InvalidInput: There is no such predictor, or it cannot be made.
            Unavailable: No node is there for too long.
        """
        stream, job = self._found(question.asked)
        spec = self._program(job.experiment.id).spec
        reads = await self._predictors.reads(spec.predictor) == "curves"
        earlier = "[]"
        if reads and spec.predictor.earlier:
            earlier = await self._earlier.curves(job.experiment.id, spec, job.experiment.created_at)
        while True:
            node = await self._node(stream, job)
            async with self._windows.setdefault(node, asyncio.Semaphore(WINDOW)):
                session = self._sessions.of(node)
                if session is None or not session.ready:
                    continue
                question.session = session
                question.answer = asyncio.get_running_loop().create_future()
                message = self._message(ticket, question.asked, stream, job, earlier if reads else None)
                session.send(resource_manager_pb2.AgentSessionResponse(question=message))
                try:
                    return await question.answer
                except _SessionOver:
                    question.session = None

    def _found(self, asked: AskOutside) -> tuple[Stream, Job]:
        stream = self._core.streams.get(asked.stream)
        job = stream.jobs.get(asked.payload["job"]) if stream is not None else None
        if stream is None or job is None:
            raise Unavailable(f"experiment {asked.stream} is over")
        return stream, job

    async def _node(self, stream: Stream, job: Job) -> str:
        try:
            async with asyncio.timeout(self._node_seconds):
                while (node := self._chosen(stream, job)) is None:
                    await self._arrival.wait()
                return node
        except TimeoutError as error:
            raise Unavailable(f"no node was there to predict on for {self._node_seconds:g} s") from error

    def _chosen(self, stream: Stream, job: Job) -> str | None:
        """The node that trains a job or trained it last; else the least busy one of the experiment's; else of all."""
        there = [session.node for session in self._sessions.connected() if session.ready]
        latest = job.channels.get((job.attempt, 0))
        if latest is not None and latest.node in there:
            return latest.node
        own = {slot.node for slot in stream.slots.values()}
        busy = [question.session.node for question in self._open.values() if question.session is not None]
        return min(there, key=lambda node: (node not in own, busy.count(node), node), default=None)

    def _message(
        self, ticket: str, asked: AskOutside, stream: Stream, job: Job, earlier: str | None
    ) -> resource_manager_pb2.NodeQuestion:
        program = self._program(job.experiment.id)
        predictor = program.spec.predictor
        payload = json.dumps(asked.payload["question"], separators=(",", ":"))
        if earlier is not None:  # The predictor reads curves.
            payload = f'{payload[:-1]},"others":{self._histories.others(stream, job)},"earlier":{earlier}}}'
        return resource_manager_pb2.NodeQuestion(
            ticket=ticket,
            kind=asked.kind,
            payload_json=payload,
            timeout_seconds=predictor.time_limit,
            predictor=resource_manager_pb2.NodePredictor(
                name=predictor.name,
                parameters_json=json.dumps(predictor.parameters),
                bundle=program.bundle if ":" in predictor.name else "",
                memory_bytes=predictor.memory or 0,
            ),
        )


def _ticket(experiment: StreamId, ticket: str) -> str:
    """A ticket as nodes know it."""
    return f"{experiment}/{ticket}"
