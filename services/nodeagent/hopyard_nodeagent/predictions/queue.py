"""The queue of predictions: a few low-priority processes answer the scheduler's questions one after another.

A question is a request for a prediction. It is identified by a *ticket*.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from hopyard._net.server import Background
from hopyard._runtime.bundle import BundleError
from hopyard.errors import HopyardError
from hopyard.v1 import resource_manager_pb2 as wire
from hopyard_nodeagent.predictions.process import MAX_ANSWER_BYTES, PredictorFailed, PredictorKey

_log = logging.getLogger(__name__)

MOST_PROCESSES: Final = 8
"""Maximum number of predictor processes, for any number of slots."""

MOST_WAITING: Final = 1000
"""Maximum number of waiting questions; the scheduler sends far fewer at a time."""

_MOST_REMEMBERED: Final = 200

_MOST_ERROR: Final = 4000

_NO_LIMIT: Final = 24 * 3600.0


class PredictorWorker(Protocol):
    """The interface of a process that runs one predictor, as the queue uses it. `PredictorProcess` implements it."""

    @property
    def key(self) -> PredictorKey:
        """What the process runs. It may answer questions with an equal key only."""

    @property
    def usable(self) -> bool:
        """Whether the process is alive, so that it can answer questions."""

    async def ask(self, question: bytes, seconds: float) -> Mapping[str, Any]:
        """Return the process's answer to a question: a dict with `result` or `error`. A cancellation kills the process.

        Raises:
            PredictorFailed: The prediction took longer than `seconds`, the process ended, or its answer is invalid.
        """

    async def kill(self) -> None:
        """Kill the process, and return when it has ended."""


class PredictionQueue:
    """The queue of the scheduler's questions, and the processes that answer them.

    Processes are started on demand, kept for further questions to the same predictor, and ended when idle. Answers are cached, so that
    a question that the scheduler repeats is answered at once. Waiting questions are dropped when a new session with the scheduler
    starts, because the scheduler repeats them.

    A new queue has no processes.

    Args:
        start: Starts a process and its predictor, or raises `PredictorFailed`.
        bundle: Returns the folder of a code bundle by its hash.
        background: Starts and supervises the tasks, one for each question that a process answers.
        processes: Maximum number of processes (>= 1), and so of questions that are answered at the same time.
        idle_seconds: Time in seconds after which an idle process is ended.
        say: Sends an answer to the scheduler: a result, or why the prediction failed.
        clock: Returns monotonic seconds, to measure idle times.
    """

    def __init__(
        self,
        start: Callable[[PredictorKey], Awaitable[PredictorWorker]],
        bundle: Callable[[str], Awaitable[Path]],
        background: Background,
        *,
        processes: int,
        idle_seconds: float,
        say: Callable[[wire.NodeAnswer], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._start = start
        self._bundle = bundle
        self._background = background
        self._processes = processes
        self._idle_seconds = idle_seconds
        self._say = say
        self._clock = clock
        self._waiting: dict[str, wire.NodeQuestion] = {}
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._answers: OrderedDict[str, wire.NodeAnswer] = OrderedDict()
        self._idle: list[tuple[PredictorWorker, float]] = []
        self._stopped = False

    def ask(self, question: wire.NodeQuestion) -> None:
        """Add a question, which is a request for a prediction.

        If a question with the same ticket (its id) waits or is being answered, nothing is added. If its answer is cached, it is sent at
        once. If `MOST_WAITING` questions wait already, an error is sent as the answer.
        """
        ticket = question.ticket
        if ticket in self._answers:
            self._say(self._answers[ticket])
        elif ticket not in self._waiting and ticket not in self._under_way:
            if len(self._waiting) < MOST_WAITING:
                self._waiting[ticket] = question
                self._go_on()
            else:
                self._say(wire.NodeAnswer(ticket=ticket, error=f"{MOST_WAITING} predictions wait on this node already"))

    def withdraw(self, ticket: str) -> None:
        """Cancel the question with this ticket (its id), and drop its cached answer. Without effect if the ticket is unknown.

        If a process answers the question now, the process is killed. No answer is sent.
        """
        self._waiting.pop(ticket, None)
        self._answers.pop(ticket, None)
        if ticket in self._under_way:
            self._under_way[ticket].cancel()

    def new_session(self) -> None:
        """Drop waiting questions when a session with the scheduler starts: the scheduler repeats them. Running predictions continue."""
        self._waiting.clear()

    async def discard(self) -> None:
        """Cancel all questions, without answers, and drop all cached answers. Return when the processes that answered are killed.

        Call it between two sessions, when the cluster was restored from a backup: the restored scheduler may give the same tickets to
        other questions.
        """
        await self._cancel()
        self._answers.clear()

    async def end_idle(self) -> None:
        """End processes that have been idle for `idle_seconds`, and remove idle processes that have ended by themselves."""
        late = self._clock() - self._idle_seconds
        for process in [process for process, since in self._idle if since <= late or not process.usable]:
            self._idle = [one for one in self._idle if one[0] is not process]
            await process.kill()

    async def stop(self) -> None:
        """Cancel all predictions and end all processes. No further answers are sent. Safe to call twice."""
        self._stopped = True
        await self._cancel()
        while self._idle:
            process, _ = self._idle.pop()
            await process.kill()

    async def _cancel(self) -> None:
        """Drop all waiting questions, cancel all that are being answered, and wait for their ends."""
        self._waiting.clear()
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _go_on(self) -> None:
        while self._waiting and len(self._under_way) < self._processes and not self._stopped:
            ticket = next(iter(self._waiting))
            serving = self._background.start(self._serve(self._waiting.pop(ticket)), name=f"prediction {ticket}")
            self._under_way[ticket] = serving
            serving.add_done_callback(partial(self._over, ticket))

    def _over(self, ticket: str, _: asyncio.Task[None]) -> None:
        del self._under_way[ticket]
        self._go_on()

    async def _serve(self, question: wire.NodeQuestion) -> None:
        answer = await self._answer(question)
        if answer.error:
            _log.warning("prediction %s: %s", answer.ticket, answer.error)
        self._answers[answer.ticket] = answer
        while len(self._answers) > _MOST_REMEMBERED:
            self._answers.popitem(last=False)
        self._say(answer)

    async def _answer(self, question: wire.NodeQuestion) -> wire.NodeAnswer:
        wanted = question.predictor
        try:
            folder = await self._bundle(wanted.bundle) if wanted.bundle else None
            key = PredictorKey(wanted.name, wanted.parameters_json or "{}", folder, wanted.memory_bytes)
            process = await self._process(key)
            said = await process.ask(question.payload_json.encode(), question.timeout_seconds or _NO_LIMIT)
        except (PredictorFailed, BundleError, HopyardError, OSError) as error:
            return wire.NodeAnswer(ticket=question.ticket, error=str(error)[:_MOST_ERROR])
        self._idle.append((process, self._clock()))
        if "error" in said:
            return wire.NodeAnswer(
                ticket=question.ticket, error=str(said["error"])[:_MOST_ERROR] or "the predictor failed"
            )
        result = json.dumps(said["result"], separators=(",", ":"))
        if len(result) > MAX_ANSWER_BYTES:  # Such as 1e15, which is written with more characters than it was read.
            wrong = f"the prediction has {len(result)} bytes, at most {MAX_ANSWER_BYTES} are allowed"
            return wire.NodeAnswer(ticket=question.ticket, error=wrong)
        return wire.NodeAnswer(ticket=question.ticket, result_json=result)

    async def _process(self, key: PredictorKey) -> PredictorWorker:
        """Return a process for a question: an idle one with the same key, else a new one.

        If a new process would exceed the maximum number, idle processes are ended before, the longest idle first. The caller answers a
        question only if fewer than this number are being answered, so there is an idle process to end.

        Raises:
            PredictorFailed: The process or its predictor could not be started.
        """
        for index, (process, _) in enumerate(self._idle):
            if process.key == key and process.usable:
                del self._idle[index]
                return process
        while self._idle and len(self._idle) + len(self._under_way) > self._processes:
            process, _ = self._idle.pop(0)
            await process.kill()
        return await self._start(key)
