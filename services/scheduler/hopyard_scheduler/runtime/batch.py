"""A batch of events: the core handles them, and policies answer the resulting up-calls.

A batch runs on the thread of the event loop. A built-in policy answers its up-calls within the batch. An up-call to a
policy process is set aside (`Batch.take_parked`): its answer arrives later as an event, and only the stream of that
policy waits for it.

Outward effects are those that concern something outside the core and its journal, such as commands to agents, timers
and requests to generators. They are carried out after the batch is journalled.
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
from hopyard_engine.core.events import Event, PolicyFailed
from hopyard_engine.journal.codec import encode, kind_of
from hopyard_engine.policy_host import Host, PolicyHost
from hopyard_scheduler.policy_process.policy import RemotePolicy
from hopyard_scheduler.runtime.journal import JournalEntry
from hopyard_scheduler.runtime.projections import Changes

_LOG = logging.getLogger(__name__)

MAX_BATCH_EVENTS: Final = 1_000
MAX_BATCH_BYTES: Final = 8 << 20
MAX_BATCH_SECONDS: Final = 0.02
"""Limits of a batch, whose records share one append: number of events, bytes of encoded events, and seconds of handling."""


@dataclass(slots=True)
class Item:
    """An event in the queue, with the future of its caller.

    Outward effects are those that concern something outside the core and its journal, such as commands to agents.

    Attributes:
        event: The event.
        outside: True if a client or an agent sent it. Only such events are counted against the limit of queued events.
        done: Receives the outward effects once the event is journalled and they are carried out; None: no caller waits.
        effects: The outward effects of the event and of the policy answers that follow from it.
        error: The error if the stream of the event is not in the core; None: no error.
        payload: The payload of the event's record, if it is known; empty: the batch encodes the event.
    """

    event: Event
    outside: bool = True
    done: asyncio.Future[list[Effect]] | None = None
    effects: list[Effect] = field(default_factory=list)
    error: UnknownStreamError | None = None
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class PendingUpCall:
    """An up-call to a policy process whose answer arrives after the batch.

    Attributes:
        call: The up-call.
        policy: The policy to which it is sent.
    """

    call: UpCall
    policy: RemotePolicy


class Batch:
    """Handles queued events and collects their journal records, changed rows and outward effects.

    Outward effects concern something outside the core and its journal, such as commands to agents.

    Call `drive`, then `take_parked` for the up-calls to policy processes. Both may be repeated until the batch is
    appended to the journal.

    Args:
        core: The core: the deterministic state machine of the engine. Nothing else may change it while `drive` runs.
        following: Removes and returns the next event of the queue; None: the queue has none that can be handled now.
        asked: Returns the object that answers an up-call: the host of a built-in policy, or a policy in a process.

    Attributes:
        items: The handled events, with their outward effects.
        entries: The journal records of the events, in order.
        changes: The jobs and experiments whose rows in AppStat must be updated.
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
        self._parked: list[PendingUpCall] = []
        self._size = 0
        self._work: deque[tuple[Event, bytes]] = deque()
        """The events to handle next, each with the payload of its record; empty: not encoded yet."""
        self._calls: deque[UpCall] = deque()
        self._until = time.monotonic() + MAX_BATCH_SECONDS

    def drive(self) -> None:
        """Handle queued events and call built-in policies until no event is left or the batch is full.

        A batch is full with `MAX_BATCH_EVENTS` events or `MAX_BATCH_BYTES` bytes of records. A call blocks for about
        `MAX_BATCH_SECONDS` at most. It may be repeated to handle events that arrived since.
        """
        while True:
            if self._work:
                self._take(*self._work.popleft())
            elif self._calls:
                self._answer(self._calls.popleft())
            elif not self._more():
                return

    def take_parked(self) -> list[PendingUpCall]:
        """Return the up-calls to policy processes that `drive` found since the last call of this method.

        The caller must send them; their answers arrive later as events.
        """
        parked, self._parked = self._parked, []
        return parked

    def _more(self) -> bool:
        """Move the next queued event into the batch. Return False if there is none or the batch is full."""
        full = len(self.items) >= MAX_BATCH_EVENTS or self._size >= MAX_BATCH_BYTES
        item = self._following() if not full and (not self.items or time.monotonic() < self._until) else None
        if item is None:
            return False
        self.items.append(item)
        self._work.append((item.event, item.payload))
        return True

    def _take(self, event: Event, encoded: bytes) -> None:
        item = self.items[-1]
        for effect in self._handle(event, item):
            match effect:
                case Record():
                    payload = encoded if encoded and effect.event is event else encode(effect.event)
                    self._size += len(payload)
                    self.entries.append(JournalEntry(effect.stream, kind_of(effect.event), payload))
                case UpCall():
                    self._calls.append(effect)
                case JobChanged() | ExperimentChanged() | ReportAccepted() | Profiled():
                    self.changes.note(effect)
                case _:
                    item.effects.append(effect)

    def _handle(self, event: Event, item: Item) -> list[Effect]:
        """Return the effects of an event.

        An unexpected error of the core quarantines the stream of the event, and the effects are those of the
        quarantine.

        If the stream of the event is not in the core, an error is stored in `item.error` and there are no effects. An
        unexpected error of an event without a stream is raised.
        """
        try:
            return self._core.handle(event)
        except UnknownStreamError as error:
            item.error = error
            return []
        except Exception as error:
            name = StreamId(getattr(event, "stream", ""))
            if name not in self._core.streams:
                raise
            _LOG.exception("experiment %s has failed: the core could not handle %s", name, event)
            said = f"{type(error).__name__}: {error}"
            reason = Reason.of(ReasonCode.ENGINE_ERROR, event=type(event).__name__, error=said)
            return quarantine(self._core, name, reason, event.at)

    def _answer(self, call: UpCall) -> None:
        """Make an up-call on a built-in policy and queue the answer, or add the up-call to a policy process to `take_parked`.

        An up-call is made after all other effects of its event, so that the policy sees the state that recovery
        reconstructs for the same up-call. An up-call that is no longer awaited is dropped.
        """
        stream = self._core.streams[call.stream]
        if not stream.conversation.is_answered_by(call.number):
            return
        host = self._asked(call)
        if isinstance(host, RemotePolicy):
            self._core.begin_up_call(call.stream)
            self._parked.append(PendingUpCall(call, host))
            return
        try:
            answer = host.answer(stream, call)
        except Exception as error:  # noqa: BLE001 - any error fails only this experiment
            _LOG.exception("experiment %s: the policy host failed", call.stream)
            reason = Reason.of(ReasonCode.POLICY_HOST_FAILED, error=f"{type(error).__name__}: {error}")
            answer = PolicyFailed(call.at, call.stream, call.number, reason)
        recorded = host.recorded if isinstance(host, PolicyHost) else None
        payload = recorded.payload if recorded is not None and recorded.event is answer else b""
        self._work.append((answer, payload))
