"""Answers that policies take their time for, awaited beside everything else that goes on."""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass
from typing import Final

from hopyard._net.rpc import Backoff
from hopyard._net.server.killable_threads import TooLong, Work
from hopyard.errors import Internal, TimedOut, Unavailable
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core import Core
from hopyard_engine.core.effects import UpCall
from hopyard_engine.core.events import PolicyAnswered, PolicyFailed
from hopyard_engine.policy_host import Host, took_too_long
from hopyard_scheduler.runtime.journal import Journal
from hopyard_scheduler.runtime.recovery import Patience, Recovered, replay

_LOG = logging.getLogger(__name__)

TOO_MANY: Final = "too many events wait"
"""With this message a thought is cancelled for which too many events wait."""

Answer = PolicyAnswered | PolicyFailed


@dataclass(frozen=True, slots=True)
class Thought:
    """What came of an up-call, and the policy if another one was made for it."""

    event: Answer
    host: Host | None


def failure(call: UpCall, reason: Reason, *, unheard: bool = False) -> PolicyFailed:
    """The failure of an up-call."""
    return PolicyFailed(call.at, call.stream, call.number, reason, unheard)


async def answer_later(work: Work[Answer | None], call: UpCall, patience: Patience, policy: str) -> Thought:
    """Waits for a policy that is at an up-call; one that takes longer than it may is given up."""
    try:
        answer = await patience.threads.finish(work, patience.seconds)
    except TooLong:
        answer = failure(call, took_too_long(policy, patience.seconds, call), unheard=True)
    return Thought(answer or failure(call, Reason(ReasonCode.POLICY_UNANSWERED)), None)


async def make_again(call: UpCall, journal: Journal, patience: Patience) -> Thought:
    """Makes another policy in the place of one that was given up: the recorded up-calls first, then the one that waits.

    On a core of its own, from the journal, which has all that led to that up-call.

    Raises:
        Internal: The journal leads elsewhere.
    """
    name = call.stream
    failures, backoff, rng = 0, Backoff(), random.Random()
    while True:
        found = Recovered()
        try:
            await replay(Core(), journal, name, found, patience)
        except (Unavailable, TimedOut) as error:
            wait = backoff.wait(failures, rng)
            failures += 1
            _LOG.warning("appstat went away while a journal was read (%s), trying again in %.1f s", error, wait)
            await asyncio.sleep(wait)
        else:
            event = found.unanswered[0] if found.unanswered else None
            number = event.answer.number if isinstance(event, PolicyAnswered) else getattr(event, "number", None)
            if not isinstance(event, PolicyAnswered | PolicyFailed) or number != call.number:
                raise Internal(f"the journal of {name} does not lead to up-call {call.number}, but to {event}")
            return Thought(event, found.hosts.get(name))
