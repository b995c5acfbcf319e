"""Reconstruction of a policy's state: repeats the recorded up-calls in a fresh process and compares the answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from hopyard.policy.vocabulary.reasons import Reason
from hopyard.v1 import policy_pb2 as pb
from hopyard_engine.core import Core
from hopyard_engine.core.effects import UpCall
from hopyard_engine.core.events import Event, PolicyAnswered, PolicyFailed
from hopyard_engine.replay import Difference, objection, of_experiment, same
from hopyard_scheduler.policy_process.state_delta import StateDelta

AHEAD: Final = 64
"""Maximum number of repeated up-calls that are sent before the first of their answers is read."""

AT_A_STRETCH: Final = 100
"""Number of applied events after which other tasks of the event loop may run."""


@dataclass(frozen=True, slots=True)
class _RepeatedCall:
    """A repeated up-call whose answer has not arrived yet.

    Attributes:
        call: The up-call.
        recorded: Its recorded answer.
        number: The position of the recorded answer in the journal.
    """

    call: UpCall
    recorded: PolicyAnswered | PolicyFailed
    number: int


async def repeat_up_calls(
    events: AsyncIterator[Event],
    until: int,
    changes: StateDelta,
    send: Callable[[pb.UpCall], Awaitable[None]],
    hear: Callable[[UpCall], Awaitable[PolicyAnswered | PolicyFailed]],
) -> Difference | None:
    """Repeat all recorded up-calls before an unanswered one, and compare the answers with the recorded ones.

    Args:
        events: All events of the stream, in order.
        until: The number of the unanswered up-call.
        changes: Computes the changes of the stream's state that each up-call sends to the process. It must
            not have been used before.
        send: Sends an up-call to the process.
        hear: Waits for the next answer of the process. The answers arrive in the order of the up-calls.

    Returns:
        The first difference between a new answer and its recorded answer. If the journal records that this difference
        has paused the experiment before, it is the first difference after the last such pause. None: there is none.
    """
    core, waiting = Core(), deque[_RepeatedCall]()
    pending: UpCall | None = None
    first: Difference | None = None
    since: Difference | None = None
    shown: set[Reason] = set()

    async def compare() -> None:
        nonlocal first, since
        told = waiting.popleft()
        computed = await hear(told.call)
        recorded = told.recorded
        if isinstance(recorded, PolicyAnswered) and not same(recorded, computed):
            call = told.call
            found = Difference(told.number, recorded.at, call.number, call.call, recorded, computed)
            first, since = first or found, since or found

    number = 0
    async for event in events:
        number += 1
        if number % AT_A_STRETCH == 0:
            await asyncio.sleep(0)
        taken = of_experiment(event, number)
        if isinstance(taken, PolicyFailed) and taken.diverged:
            while waiting:
                await compare()
            shown.add(taken.reason)
            since = None
        if pending is not None and pending.number < until and _answers(taken, pending):
            assert isinstance(taken, PolicyAnswered | PolicyFailed)
            await send(changes.up_call(core.streams[pending.stream], pending, again=True))
            waiting.append(_RepeatedCall(pending, taken, number))
            pending = None
            if len(waiting) == AHEAD:
                await compare()
        for effect in core.restore(taken):
            if isinstance(effect, UpCall):
                pending = effect
    while waiting:
        await compare()
    return first if first is not None and objection(first) not in shown else since


def _answers(event: Event, call: UpCall) -> bool:
    """Return True if an event records the policy's own answer to an up-call, and not a failure that the scheduler found."""
    if isinstance(event, PolicyAnswered):
        return event.answer.number == call.number
    if isinstance(event, PolicyFailed) and event.number == call.number:
        return not event.unheard and not event.diverged
    return False
