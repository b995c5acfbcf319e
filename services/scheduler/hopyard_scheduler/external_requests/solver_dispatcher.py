"""Requests of policies to solvers: plugins that solve optimization problems, such as mixed-integer programs.

Each request runs in its own process with a time limit, and ends with a result or an error.

A restarted scheduler repeats unanswered requests: a solver's answer depends only on the payload, and the core accepts
one answer for each ticket.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, Final

from hopyard._common.plugins import SOLVERS, load_plugin, plugin_names
from hopyard._net.server import Background
from hopyard._runtime.processes.process_limits import ResourceLimits
from hopyard._runtime.processes.worker_client import aside
from hopyard.errors import HopyardError, InvalidInput
from hopyard.policy.vocabulary import StreamId
from hopyard.solver import Solver
from hopyard.solver.invoke import MOST_BYTES
from hopyard_engine.core.effects import AskOutside
from hopyard_engine.core.events import Answered, Event

AT_ONCE: Final = 2
"""Maximum number of solver processes. Requests of one experiment run one after the other."""

MOST_OPEN: Final = 32
"""Maximum number of open requests of an experiment; further ones are answered with an error."""

START_SECONDS: Final = 60.0
"""Time limit in seconds to import and create a solver."""

GRACE: Final = 5.0
"""Seconds in addition to 1.5 times the time limit of a request, after which its process is killed."""

PRIORITY: Final = 5
"""The nice value of solver processes: they yield to training and services but still make progress."""

LIMITS: Final = ResourceLimits()
"""The limits of a solver process with its descendants."""

MAX_ERROR: Final = 2000
"""Maximum number of characters of an error."""

Solve = Callable[[str, Any, float], Awaitable[Any]]


async def solve_aside(kind: str, payload: Any, seconds: float) -> Any:
    """Return a solver's answer. It is computed in a process that is killed with its process group before this function returns.

    Args:
        kind: The plugin name of the solver, or `module:Class`.
        payload: The problem, as JSON data.
        seconds: The time limit that the solver gets. The process is killed after 1.5 times this limit plus `GRACE`.

    Raises:
        InvalidInput: The solver is unknown, raised an error or took too long, or its process ended.
    """
    if ":" not in kind and kind not in plugin_names(SOLVERS):
        load_plugin(SOLVERS, kind, Solver)  # It raises an error that names the known solvers.
    most = MOST_BYTES + 1000
    async with aside(
        "hopyard.solver.process", f"solver {kind}", priority=PRIORITY, most_bytes=most, limits=LIMITS
    ) as process:
        await process.ask({"kind": kind, "path": sys.path}, START_SECONDS, "to be made", "while it was made")
        limit = 1.5 * seconds + GRACE
        said = await process.ask({"payload": payload, "seconds": seconds}, limit, "to answer", "while it thought")
    if "result" not in said:
        raise InvalidInput(
            f"solver {kind}: its process said what is no answer: found {sorted(said)}, a result is needed"
        )
    return said["result"]


class Solvers:
    """Sends the requests of policies to solvers, and posts their answers as events.

    Args:
        background: Runs one task for each request.
        clock: Returns seconds since the Unix epoch.
        solve: Answers one request, given the solver's name, the problem as JSON data, and the time limit in seconds, or raises
            HopyardError.
    """

    def __init__(self, background: Background, clock: Callable[[], float], solve: Solve = solve_aside) -> None:
        self._background = background
        self._clock = clock
        self._solve = solve
        self._open: dict[tuple[StreamId, str], asyncio.Task[None]] = {}
        self._turns: defaultdict[StreamId, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._places = asyncio.Semaphore(AT_ONCE)
        self._stopped = False

    def attach(self, post: Callable[[Event], None]) -> None:
        """Connect the event queue. It must be called before `ask`.

        Args:
            post: Adds an event to the queue; receives the answers.
        """
        self._post = post

    def ask(self, asked: AskOutside) -> None:
        """Queue a request behind the earlier requests of its stream. The answer is posted as an event.

        A request with the ticket of an unanswered request of its stream is ignored. If the stream has `MOST_OPEN`
        unanswered requests, the answer is an error.

        Args:
            asked: The request of the core.
        """
        key = asked.stream, asked.ticket
        if key in self._open or self._stopped:
            return
        if sum(experiment == asked.stream for experiment, _ in self._open) >= MOST_OPEN:
            self._answer(asked, None, f"{MOST_OPEN} questions of this experiment wait for their answers already")
            return
        self._open[key] = self._background.start(self._serve(asked), name=f"solver {'/'.join(key)}")

    def withdraw(self, stream: StreamId, ticket: str) -> None:
        """Cancel an unanswered request. Unknown tickets are ignored.

        Args:
            stream: The id of the stream that made the request.
            ticket: The ticket of the request, which identifies it within the stream.
        """
        task = self._open.pop((stream, ticket), None)
        if task is not None:
            task.cancel()

    def ended(self, stream: StreamId) -> None:
        """Release the queue of an ended stream. The core withdraws its unanswered requests."""
        self._turns.pop(stream, None)

    def stop(self) -> None:
        """Ignore further requests. After a restart, the scheduler repeats the unanswered ones."""
        self._stopped = True

    async def _serve(self, asked: AskOutside) -> None:
        result, error = None, ""
        try:
            async with self._turns[asked.stream], self._places:
                result = await self._solve(asked.kind, asked.payload, asked.seconds)
        except HopyardError as problem:
            error = str(problem)
        except OSError as problem:
            error = f"solver {asked.kind}: no process can be started: {problem.strerror}"
        if self._open.pop((asked.stream, asked.ticket), None) is not None:
            self._answer(asked, result, error)

    def _answer(self, asked: AskOutside, result: Any, error: str) -> None:
        self._post(Answered(self._clock(), asked.stream, asked.ticket, result, error[:MAX_ERROR]))
