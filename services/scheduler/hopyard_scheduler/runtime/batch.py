"""One batch through the core: events in, the policies' answers to what follows, and what comes of it.

All of it happens on the thread of the event loop. Policies that come with Hopyard are asked in the batch. An up-call of a policy in a
process is parked: its experiment waits for the answer, and the others do not.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from hopyard.policy.vocabulary import StreamId
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core import Core, UnknownStreamError, quarantine
from hopyard_engine.core.effects import Effect, ExperimentChanged, JobChanged, Profiled, Record, ReportAccepted, UpCall
from hopyard_engine.core.events import Event, PolicyAnswered, PolicyFailed
from hopyard_engine.journal.codec import encode, kind_of
from hopyard_engine.policy_host import Host
from hopyard_scheduler.policy_process.policy import RemotePolicy
from hopyard_scheduler.runtime.journal import JournalEntry
from hopyard_scheduler.runtime.projections import Changes

_LOG = logging.getLogger(__name__)

MAX_BATCH_EVENTS: Final = 1_000
MAX_BATCH_BYTES: Final = 8 << 20
MAX_BATCH_SECONDS: Final = 0.02
"""What shares one append: no more events or bytes than these, and no more than this time at a stretch in the core."""


@dataclass(slots=True)
class Item:
    """An event on its way, who waits until it is journalled, and whether it came from outside."""

    event: Event
    outside: bool = True
    done: asyncio.Future[list[Effect]] | None = None
    effects: list[Effect] = field(default_factory=list)
    error: UnknownStreamError | None = None


@dataclass(frozen=True, slots=True)
class Parked:
    """An up-call that nobody but its experiment waits for, and the policy that answers it."""

    call: UpCall
    policy: RemotePolicy


class Batch:
    """What is taken together.

    Args:
        core: Nobody else may touch it while the batch is driven.
        following: The next event that may be taken; None: there is none.
        asked: Who answers an up-call: a host, or a policy in a process, which is asked after the batch.

    Attributes:
        items: The events taken, with their outward effects.
        entries: Their records.
        changes: What is to be projected.
    """

    def __init__(
        self,
        core: Core,
        following: Callable[[], Item | None],
        asked: Callable[[UpCall], Host | RemotePolicy],
    ) -> None:
        self._core = core
        self._following = following
        self._asked = asked
        self.items: list[Item] = []
        self.entries: list[JournalEntry] = []
        self.changes = Changes()
        self._parked: list[Parked] = []
        self._size = 0
        self._work: deque[Event] = deque()
        self._calls: deque[UpCall] = deque()
        self._until = time.monotonic() + MAX_BATCH_SECONDS

    def drive(self) -> None:
        """Takes as many events as fit into a batch, and asks the policies. Blocks for about a batch's time at most.

        It may be called again, with what has arrived meanwhile.
        """
        while True:
            if self._work:
                self._take(self._work.popleft())
            elif self._calls:
                answer = self._answer(self._calls.popleft())
                if answer is not None:
                    self._work.append(answer)
            elif not self._more():
                return

    def take_parked(self) -> list[Parked]:
        """The up-calls that wait for their answers, each once."""
        parked, self._parked = self._parked, []
        return parked

    def _more(self) -> bool:
        """Begins with the next event, if there is one and it fits."""
        full = len(self.items) >= MAX_BATCH_EVENTS or self._size >= MAX_BATCH_BYTES
        item = self._following() if not full and (not self.items or time.monotonic() < self._until) else None
        if item is None:
            return False
        self.items.append(item)
        self._work.append(item.event)
        return True

    def _take(self, event: Event) -> None:
        item = self.items[-1]
        for effect in self._handle(event, item):
            match effect:
                case Record():
                    payload = encode(effect.event)
                    self._size += len(payload)
                    self.entries.append(JournalEntry(effect.stream, kind_of(effect.event), payload))
                case UpCall():
                    self._calls.append(effect)
                case JobChanged() | ExperimentChanged() | ReportAccepted() | Profiled():
                    self.changes.note(effect)
                case _:
                    item.effects.append(effect)

    def _handle(self, event: Event, item: Item) -> list[Effect]:
        """The core's effects. A mistake in the core costs the experiment that it struck, not the others."""
        try:
            return self._core.handle(event)
        except UnknownStreamError as error:
            item.error = error
            return []
        except Exception as error:
            name = StreamId(getattr(event, "stream", ""))
            if name not in self._core.streams:
                raise
            _LOG.exception("experiment %s is failed: the core could not take %s", name, event)
            said = f"{type(error).__name__}: {error}"
            reason = Reason.of(ReasonCode.ENGINE_ERROR, event=type(event).__name__, error=said)
            return quarantine(self._core, name, reason, event.at)

    def _answer(self, call: UpCall) -> PolicyAnswered | PolicyFailed | None:
        """The answer to an up-call; None: there is none yet, or none is needed.

        A policy is asked when nothing else of its event is left to take, so that nothing comes between what it sees and the
        record of its answer: that is where recovery makes the up-call again.
        """
        stream = self._core.streams[call.stream]
        if not stream.conversation.is_answered_by(call.number):
            return None
        host = self._asked(call)
        if isinstance(host, RemotePolicy):
            self._core.think(call.stream)
            self._parked.append(Parked(call, host))
            return None
        try:
            return host.answer(stream, call)
        except Exception as error:  # noqa: BLE001 - whatever it is, it costs this experiment, and no other
            _LOG.exception("experiment %s: the policy host failed", call.stream)
            reason = Reason.of(ReasonCode.POLICY_HOST_FAILED, error=f"{type(error).__name__}: {error}")
            return PolicyFailed(call.at, call.stream, call.number, reason)
