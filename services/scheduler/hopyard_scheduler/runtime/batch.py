"""One batch through the core: events in, the policies' answers to what follows, and what comes of it.

A batch is driven on the event loop's thread until a policy is to be asked, and from there on a policy thread, for which the
loop waits: one change of threads for a batch. When a policy takes longer than a moment the loop leaves that thread to it, parks
the up-call, and has the rest driven on another thread. So at any time one thread only is at the core.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from hopyard._net.server.killable_threads import GivenUp, Threads, Work
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core import Core, UnknownStreamError, quarantine
from hopyard_engine.core.effects import Effect, ExperimentChanged, JobChanged, Profiled, Record, ReportAccepted, UpCall
from hopyard_engine.core.events import Event, PolicyFailed
from hopyard_engine.journal.codec import encode, kind_of
from hopyard_engine.policy_host import Host
from hopyard_scheduler.policy_process.policy import RemotePolicy
from hopyard_scheduler.runtime.journal import JournalEntry
from hopyard_scheduler.runtime.pending_policies import Answer, failure
from hopyard_scheduler.runtime.projections import Changes

_LOG = logging.getLogger(__name__)

MAX_BATCH_EVENTS: Final = 1_000
MAX_BATCH_BYTES: Final = 8 << 20
MAX_BATCH_SECONDS: Final = 0.02
"""What shares one append: no more events or bytes than these, and no more than this time at a stretch in the core."""

HOLD_SECONDS: Final = 0.005
"""After so long at one up-call a policy is left to think, and only its experiment waits for it."""


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
    """An up-call that nobody but its experiment waits for.

    `work` is where the policy thinks: a thread, or a process of its own; None: it is to be made again.
    """

    call: UpCall
    work: Work[Answer | None] | RemotePolicy | None


class Batch:
    """What is taken together.

    Args:
        core: Nobody else may touch it while the batch is driven.
        following: The next event that may be taken; None: there is none.
        asked: Who answers an up-call: its host; a process, which is asked later; the answer, if nobody is to be asked; None: a
            policy that is to be made again.

    Attributes:
        items: The events taken, with their outward effects.
        entries: Their records.
        changes: What is to be projected.
        parked: Up-calls that wait for their answers; their experiments think.
    """

    def __init__(
        self,
        core: Core,
        following: Callable[[], Item | None],
        asked: Callable[[UpCall], Host | RemotePolicy | PolicyFailed | None],
    ) -> None:
        self._core = core
        self._following = following
        self._asked = asked
        self.items: list[Item] = []
        self.entries: list[JournalEntry] = []
        self.changes = Changes()
        self.parked: list[Parked] = []
        self._size = 0
        self._work: deque[Event] = deque()
        self._calls: deque[UpCall] = deque()
        self._until = time.monotonic() + MAX_BATCH_SECONDS
        self._lock = threading.Lock()
        self._found: tuple[UpCall, Host | RemotePolicy | PolicyFailed | None] | None = None
        self._doing: UpCall | None = None
        self._left: set[tuple[str, int]] = set()

    def drive(self, threads: Threads) -> None:
        """Takes as many events as fit into a batch, and asks the policies. Blocks for about a batch's time at most."""
        self._go(ask=False)
        while self._work or self._calls:
            work = threads.start(lambda: self._go(ask=True))
            seen: UpCall | None = None
            while not work.wait(HOLD_SECONDS):
                doing = self._doing
                if doing is not None and (doing is seen or time.monotonic() > self._until) and self._leave(doing):
                    self._park(doing, work)
                    self._go(ask=False)
                    break
                seen = doing
            else:
                work.result()

    def _leave(self, call: UpCall) -> bool:
        """The policy is left to think; False: it has just answered."""
        with self._lock:
            if self._doing is not call:
                return False
            self._doing = None
            self._left.add((call.stream, call.number))
            return True

    def _park(self, call: UpCall, work: Work[Answer | None] | RemotePolicy | None) -> None:
        self._core.think(call.stream)
        self.parked.append(Parked(call, work))

    def _go(self, *, ask: bool) -> Answer | None:
        """Drives on. Returns None when no more is to be taken, or before a policy is asked here if none may be.

        Returns:
            The answer to an up-call that was parked meanwhile: then this is no more the thread that drives.
        """
        while True:
            if self._work:
                self._take(self._work.popleft())
            elif self._calls:
                if not ask and self._thinks_here(self._calls[0]):
                    return None
                answer, mine = self._answer(self._calls.popleft())
                if not mine:
                    return answer
                if answer is not None:
                    self._work.append(answer)
            elif not self._more():
                return None

    def _thinks_here(self, call: UpCall) -> bool:
        """Whether an up-call is made in this process, which may take its time."""
        stream = self._core.streams[call.stream]
        if not stream.conversation.is_answered_by(call.number):
            return False
        host = self._host(call)
        return host is not None and not isinstance(host, RemotePolicy | PolicyFailed)

    def _host(self, call: UpCall) -> Host | RemotePolicy | PolicyFailed | None:
        """Who answers an up-call: looked for once."""
        if self._found is None or self._found[0] is not call:
            self._found = call, self._asked(call)
        return self._found[1]

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
            name = getattr(event, "stream", "")
            if name not in self._core.streams:
                raise
            _LOG.exception("experiment %s is failed: the core could not take %s", name, event)
            said = f"{type(error).__name__}: {error}"
            reason = Reason.of(ReasonCode.ENGINE_ERROR, event=type(event).__name__, error=said)
            return quarantine(self._core, name, reason, event.at)

    def _answer(self, call: UpCall) -> tuple[Answer | None, bool]:
        """The answer to an up-call, if there is one, and whether this thread still drives.

        A policy is asked when nothing else of its event is left to take, so that nothing comes between what it sees and the
        record of its answer: that is where recovery makes the up-call again.
        """
        stream = self._core.streams[call.stream]
        if not stream.conversation.is_answered_by(call.number):
            return None, True
        host = self._host(call)
        if host is None or isinstance(host, RemotePolicy):
            self._park(call, host)
            return None, True
        if isinstance(host, PolicyFailed):
            return host, True
        self._doing = call
        try:
            answer: Answer = host.answer(stream, call)
        except GivenUp:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, it costs this experiment, and no other
            _LOG.exception("experiment %s: the policy host failed", call.stream)
            answer = failure(call, Reason.of(ReasonCode.POLICY_HOST_FAILED, error=f"{type(error).__name__}: {error}"))
        with self._lock:
            if (call.stream, call.number) in self._left:
                return answer, False
            self._doing = None
        return answer, True
