"""Requests to predictors: the dispatcher sends them to nodes and repeats them until one node has answered.

A request is sent to the node that trains its job or trained it last. If that node is not connected, it is sent to
another one, preferably one with slots of the experiment. If the session of the node ends, the request is sent again.
All nodes compute equal answers, so two answers to one request are harmless: the core accepts the first.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from hopyard._common.bounded_json import read_json
from hopyard._net.server import Background
from hopyard.errors import HopyardError, Unavailable
from hopyard.policy.vocabulary import ExperimentId, StreamId
from hopyard.predictor import Question
from hopyard.predictor.wire import check_prediction, prediction_from_wire, prediction_to_wire, question_from_json
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
from hopyard_scheduler.external_requests.predictions.probe import Predictors, own_code

WINDOW: Final = 16
"""Maximum number of unanswered requests of a node. Further requests wait, and contain the curves at the time of sending."""

NODE_SECONDS: Final = 60.0
"""Seconds that a request waits for a connected node."""

MAX_ERROR: Final = 2000
"""Maximum number of characters of an error."""


class _SessionOver(Exception):
    """Raised when the session over which a request was sent has ended."""


@dataclass(slots=True)
class _Open:
    """An unanswered request.

    Attributes:
        asked: The request of the core.
        task: The task that serves the request; None: not started yet.
        session: The session over which it was sent; None: it is not sent, or must be sent again.
        answer: Receives the answer of the node; None: the request was never sent.
    """

    asked: AskOutside
    task: asyncio.Task[None] | None = None
    session: Session | None = None
    answer: asyncio.Future[resource_manager_pb2.NodeAnswer] | None = None


class PredictionDispatcher:
    """Sends prediction requests to nodes, and posts the answers as events.

    Args:
        sessions: The agent sessions of nodes.
        background: Runs one task for each request.
        clock: Returns seconds since the Unix epoch.
        earlier: Reads the learning curves of earlier experiments.
        predictors: Determines whether a predictor reads the curves of other jobs.
        node_seconds: Seconds that a request waits for a connected node. After them, the answer is an error.
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
        """Connect the scheduler's other components. It must be called before `ask`.

        Args:
            core: The state machine of the engine, which has the jobs and their learning curves.
            post: Adds an event to the queue; receives the answers.
            program: Returns the program of an experiment.
        """
        self._core = core
        self._post = post
        self._program = program

    def ask(self, asked: AskOutside) -> None:
        """Start to serve a prediction request. Its answer or error is posted as an event.

        A request with the ticket of an unanswered request of its stream is ignored.

        Args:
            asked: The request of the core.
        """
        ticket = _ticket(asked.stream, asked.ticket)
        if ticket in self._open or self._stopped:
            return
        question = self._open[ticket] = _Open(asked)
        question.task = self._background.start(self._serve(ticket, question), name=f"prediction {ticket}")

    def withdraw(self, stream: StreamId, ticket: str) -> None:
        """Cancel an unanswered request, also on the node that computes it. Unknown tickets are ignored.

        Args:
            stream: The id of the stream that made the request.
            ticket: The ticket of the request, which identifies it within the stream.
        """
        name = _ticket(stream, ticket)
        question = self._open.pop(name, None)
        if question is None:
            return
        if question.task is not None:
            question.task.cancel()
        if question.session is not None:
            message = resource_manager_pb2.WithdrawQuestion(ticket=name)
            question.session.send(resource_manager_pb2.AgentSessionResponse(withdraw_question=message))

    def answered(self, answer: resource_manager_pb2.NodeAnswer) -> None:
        """Pass the answer of a node to the request that waits for it. Answers to unknown tickets are ignored."""
        question = self._open.get(answer.ticket)
        if question is not None and question.answer is not None and not question.answer.done():
            question.answer.set_result(answer)

    def joined(self) -> None:
        """Wake the requests that wait for a node. Called after a node has connected."""
        self._arrival.set()
        self._arrival = asyncio.Event()

    def ended(self, experiment: ExperimentId) -> None:
        """Release the cached learning curves of an ended experiment."""
        self._histories.forget(experiment)
        self._earlier.forget(experiment)

    def stop(self) -> None:
        """Ignore further requests. After a restart, the scheduler repeats the unanswered ones."""
        self._stopped = True

    def _left(self, session: Session) -> None:
        """Make the unanswered requests of an ended session be sent again."""
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
                found = prediction_from_wire(read_json(said.result_json))
                result = prediction_to_wire(check_prediction(found, _question(asked)))
        except HopyardError as problem:
            error = str(problem)
        except ValueError as problem:
            error = f"the node's answer {problem}"
        if self._open.pop(ticket, None) is question:
            self._post(Answered(self._clock(), asked.stream, asked.ticket, result, error[:MAX_ERROR]))

    async def _put(self, ticket: str, question: _Open) -> resource_manager_pb2.NodeAnswer:
        """Send a request to one node after the other until one answers. Return the answer.

        Args:
            ticket: The ticket of the request, unique in the cluster.
            question: The request.

        Raises:
            InvalidInput: The predictor is unknown or cannot be created.
            Unavailable: No node was connected for `node_seconds` seconds (see the class), or the job no longer exists.
        """
        stream, job = self._found(question.asked)
        program = self._program(job.experiment.id)
        spec = program.spec
        reads = await self._predictors.reads(spec.predictor, program.bundle) == "curves"
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
        """Return the node to which a request for a prediction of a job is sent; None: no node is connected.

        It is the node that trains the job or trained it last. If that is not connected, it is the connected node with the
        fewest unanswered requests: among those with slots of the experiment if there are any, else among all.
        """
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
        if earlier is not None:
            payload = f'{payload[:-1]},"others":{self._histories.others(stream, job)},"earlier":{earlier}}}'
        return resource_manager_pb2.NodeQuestion(
            ticket=ticket,
            kind=asked.kind,
            payload_json=payload,
            timeout_seconds=predictor.time_limit,
            predictor=resource_manager_pb2.NodePredictor(
                name=predictor.name,
                parameters_json=json.dumps(predictor.parameters),
                bundle=program.bundle if own_code(predictor) else "",
                memory_bytes=predictor.memory or 0,
            ),
        )


def _question(asked: AskOutside) -> Question:
    """Return the question of a request, without the curves of other jobs."""
    return question_from_json(json.dumps(asked.payload["question"]))


def _ticket(stream: StreamId, ticket: str) -> str:
    """Return the ticket of a request that is unique in the cluster.

    Args:
        stream: The stream of the request.
        ticket: Its ticket, which is unique in the stream.
    """
    return f"{stream}/{ticket}"
