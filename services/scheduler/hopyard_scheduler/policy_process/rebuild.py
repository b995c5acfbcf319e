"""Rebuilding of a policy's state: repeats the recorded up-calls in a fresh process and compares the answers."""

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
"""Maximum number of repeated up-calls that wait for their answers."""

AT_A_STRETCH: Final = 100
"""Number of applied events after which other tasks get a turn."""


@dataclass(frozen=True, slots=True)
class _Told:
    """A repeated up-call.

    Attributes:
        call: The up-call.
        recorded: Its recorded answer.
        number: The number of that record in the journal.
    """

    call: UpCall
    recorded: PolicyAnswered | PolicyFailed
    number: int


async def retell(
    events: AsyncIterator[Event],
    until: int,
    changes: StateDelta,
    send: Callable[[pb.UpCall], Awaitable[None]],
    hear: Callable[[UpCall], Awaitable[PolicyAnswered | PolicyFailed]],
) -> Difference | None:
    """Repeats all recorded up-calls before an unanswered one.

    Args:
        events: All events of the experiment.
        until: The number of the unanswered up-call.
        changes: The state that the process knows: none yet.
        send: Sends an up-call.
        hear: Awaits the answers in order.

    Returns:
        The first answer that differs from the recorded one and was not reported before; None: no such answer.
    """
    core, waiting = Core(), deque[_Told]()
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
            waiting.append(_Told(pending, taken, number))
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
    """Returns True if an event records the policy's own answer to an up-call, not a failure noted by the scheduler."""
    if isinstance(event, PolicyAnswered):
        return event.answer.number == call.number
    if isinstance(event, PolicyFailed) and event.number == call.number:
        return not event.unheard and not event.diverged
    return False
