"""What policies ask of solvers: each question is answered in a process of its own, within its time, or with an error.

A question that is open when the scheduler ends is asked again by the next one: solvers are functions of their payloads, and the
core takes one answer for a ticket.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, Final

from hopyard._common.plugins import SOLVERS, load_plugin, plugin_names
from hopyard._net.server import Background
from hopyard.errors import HopyardError, InvalidInput
from hopyard.policy.vocabulary import StreamId
from hopyard.solver import Solver
from hopyard.solver.invoke import MOST_BYTES
from hopyard_engine.core.effects import AskOutside
from hopyard_engine.core.events import Answered, Event
from hopyard_scheduler.external_requests.worker_process import aside

AT_ONCE: Final = 2
"""Processes at a time, of all experiments together; of one experiment one question is answered after the other."""

MOST_OPEN: Final = 32
"""Questions of an experiment that may be open; further ones are answered with an error."""

START_SECONDS: Final = 60.0
"""How long it may take to import and make a solver."""

GRACE: Final = 5.0
"""Seconds beyond its time, and half of that on top, after which a solver that thinks on is ended."""

PRIORITY: Final = 5
"""Its nice value: training, and the services, come first, and yet it has to get on."""

MAX_ERROR: Final = 2000
"""Characters of an error that are kept."""

Solve = Callable[[str, Any, float], Awaitable[Any]]


async def solve_aside(kind: str, payload: Any, seconds: float) -> Any:
    """A solver's answer, from a process that is gone when this returns, with all that it started in its group.

    Raises:
        InvalidInput: There is no such solver, or it has no answer; or how its process ended, or that it took too long.
    """
    if ":" not in kind and kind not in plugin_names(SOLVERS):
        load_plugin(SOLVERS, kind, Solver)  # Nobody has it: says so, and who is there.
    most = MOST_BYTES + 1000
    async with aside("hopyard.solver.process", f"solver {kind}", priority=PRIORITY, most_bytes=most) as process:
        await process.ask({"kind": kind, "path": sys.path}, START_SECONDS, "to be made", "while it was made")
        limit = 1.5 * seconds + GRACE
        said = await process.ask({"payload": payload, "seconds": seconds}, limit, "to answer", "while it thought")
    if "result" not in said:
        raise InvalidInput(
            f"solver {kind}: its process said what is no answer: found {sorted(said)}, a result is needed"
        )
    return said["result"]


class Solvers:
    """Puts the questions of policies to solvers.

    Args:
        background: Owns the tasks, one for each question.
        clock: Seconds since the epoch.
        solve: Answers one, or raises HopyardError.
    """

    def __init__(self, background: Background, clock: Callable[[], float], solve: Solve = solve_aside) -> None:
        self._background = background
        self._clock = clock
        self._solve = solve
        self._open: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._places = asyncio.Semaphore(AT_ONCE)
        self._stopped = False

    def attach(self, post: Callable[[Event], None]) -> None:
        """Says where answers go."""
        self._post = post

    def ask(self, asked: AskOutside) -> None:
        """Puts a question behind the earlier ones of its experiment; asked again with the same ticket it goes on as it is."""
        key = asked.stream, asked.ticket
        if key in self._open or self._stopped:
            return
        if sum(experiment == asked.stream for experiment, _ in self._open) >= MOST_OPEN:
            self._answer(asked, None, f"{MOST_OPEN} questions of this experiment wait for their answers already")
            return
        self._open[key] = self._background.start(self._serve(asked), name=f"solver {'/'.join(key)}")

    def withdraw(self, experiment: StreamId, ticket: str) -> None:
        """Nobody waits for an answer any more; what is no open question of ours is left alone."""
        task = self._open.pop((experiment, ticket), None)
        if task is not None:
            task.cancel()

    def ended(self, experiment: StreamId) -> None:
        """An experiment is over, and its questions are withdrawn."""
        self._turns.pop(experiment, None)

    def stop(self) -> None:
        """Nothing more is put: what is open is asked again by the next scheduler."""
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
