"""The live shell around the core: events in from queues and timers, effects out once the journal has them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hopyard.errors import NotFound
from hopyard.serving.threads import Threads
from hopyard_scheduler.carrying import Carrier
from hopyard_scheduler.codec import encode, kind_of
from hopyard_scheduler.core import Core, UnknownExperimentError, quarantine
from hopyard_scheduler.core.effects import (
    Effect,
    ExperimentChanged,
    JobChanged,
    Noted,
    Record,
    ReportAccepted,
    UpCall,
)
from hopyard_scheduler.core.events import (
    ClusterEvent,
    Event,
    JobOperated,
    PolicyAnswered,
    PolicyFailed,
    Updated,
)
from hopyard_scheduler.core.experiment import Experiment
from hopyard_scheduler.core.member import Member
from hopyard_scheduler.inboxes import Inboxes
from hopyard_scheduler.journal import Entry, Journal
from hopyard_scheduler.policies import host_of
from hopyard_scheduler.policyhost import Host, LatePolicy
from hopyard_scheduler.program import Program, program_of
from hopyard_scheduler.projections import Changes
from hopyard_scheduler.recovery import Patience, Recovered
from hopyard_scheduler.thoughts import TOO_MANY, Thought, answer_later, answer_of, failure, make_again
from hopyard_scheduler.watch import Watchers

_LOG = logging.getLogger(__name__)

MAX_EVENTS: Final = 100_000
"""Events from outside that may wait; then agents' streams wait too."""

MAX_BATCH_EVENTS: Final = 1_000
MAX_BATCH_BYTES: Final = 8 << 20
MAX_BATCH_SECONDS: Final = 0.02
"""What shares one append: no more events or bytes than these, and no more than this time at a stretch in the core."""

HOLD_SECONDS: Final = 0.005
"""So long the loop waits for a policy's answer, and all else with it; then only the policy's experiment waits."""

DEFAULT_POLICY_SECONDS: Final = 10.0
"""How long a policy may take over an up-call."""

MAX_INBOX: Final = 20_000
"""Events that may wait for an experiment whose policy thinks; with more, the policy has taken too long."""

MAX_FINISHED: Final = 32
"""Finished experiments that stay in memory; older ones are read from the journal again when somebody asks."""


@dataclass(slots=True)
class _Item:
    """An event on its way, who waits until it is journalled, and whether it came from outside."""

    event: Event
    outside: bool = True
    done: asyncio.Future[list[Effect]] | None = None
    effects: list[Effect] = field(default_factory=list)


class Live:
    """Drives the core. One loop takes events in batches; a batch's effects go out when its records are durable.

    Args:
        journal: Begun.
        carrier: Carries out effects.
        clock: Seconds since the epoch.
        policy_seconds: How long a policy may take over an up-call (> 0).

    Attributes:
        given_up: Experiments whose policies took too long. With a text, the next up-call fails with it; else another policy
            is made from the journal then.
    """

    def __init__(
        self,
        journal: Journal,
        carrier: Carrier,
        clock: Callable[[], float] = time.time,
        policy_seconds: float = DEFAULT_POLICY_SECONDS,
    ) -> None:
        self.core = Core()
        self.patience = Patience(Threads("policy"), policy_seconds)
        self.given_up: dict[str, str] = {}
        self.journal = journal
        self.carrier = carrier
        self.watchers = Watchers()
        self.clock = clock
        self.hosts: dict[str, Host] = {}
        self._programs: dict[str, Program] = {}
        self._queue: asyncio.Queue[_Item] = asyncio.Queue()
        self._room = asyncio.Semaphore(MAX_EVENTS)
        self._inboxes = Inboxes[_Item](self.core.thinks)
        self._from_inbox = False
        self._parked: list[tuple[str, Coroutine[Any, Any, None]]] = []
        self._thoughts: dict[str, asyncio.Task[None]] = {}
        self._finished: dict[str, None] = {}
        self.turn = asyncio.Lock()
        """Held while a batch is under way: whoever takes it sees the core between two, all effects carried out."""
        self._changing: Mapping[str, object] = {}
        carrier.attach(self.core, self.post, self.program)

    # ------------------------------------------------------------------------------------------------------------ events

    def post(self, event: Event) -> None:
        """Queues an event from inside, such as an answer or a timer: never refused, never waiting."""
        self._queue.put_nowait(_Item(event, outside=False))

    async def submit(self, event: Event) -> None:
        """Queues an event from outside, waiting while too many wait already."""
        await self._room.acquire()
        self._queue.put_nowait(_Item(event))

    async def apply(self, event: Event) -> list[Effect]:
        """Takes an event and returns its outward effects, once it is journalled and they went out.

        Raises:
            UnknownExperimentError: The event's experiment is not there.
        """
        await self._room.acquire()
        done: asyncio.Future[list[Effect]] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(_Item(event, done=done))
        return await done

    async def operate(self, event: JobOperated | Updated) -> str:
        """Takes what a person wants. Returns what stood against it; empty: it was carried out."""
        effects = await self.apply(event)
        return next((e.text for e in effects if isinstance(e, Noted) and e.text.startswith("refused")), "")

    async def run(self) -> None:
        """Takes events until cancelled. What rises here is the scheduler's end: another one writes the journal."""
        try:
            while True:
                item = self._next()
                if item is None:
                    item = await self._queue.get()
                    if self._kept(item):
                        continue
                async with self.turn:
                    await self._take(item)
        finally:
            for _, parked in self._parked:
                parked.close()
            for thought in self._thoughts.values():
                thought.cancel()
            self.patience.threads.close()

    async def drained(self) -> None:
        """Waits until everything that was queued is journalled and carried out."""
        await self._queue.join()

    async def _take(self, first: _Item) -> None:
        """One batch: as many waiting events as fit into its bounds, one append, then their effects."""
        batch = [first]
        entries: list[Entry] = []
        changes = Changes()
        self._changing = changes.experiments
        until = time.monotonic() + MAX_BATCH_SECONDS
        size = self._drive(first, entries, changes, until)
        while len(batch) < MAX_BATCH_EVENTS and size < MAX_BATCH_BYTES and time.monotonic() < until:
            following = self._next()
            if following is None:
                break
            batch.append(following)
            size += self._drive(following, entries, changes, until)
        at = self.clock()
        await self.journal.append(entries, changes.rows(self.core, at), at)
        self._start_thoughts()
        await self.carrier.clear(effect for item in batch for effect in item.effects)
        for item in batch:
            for effect in item.effects:
                self.carrier.carry(effect)
            self._queue.task_done()
            if item.outside:
                self._room.release()
            if item.done is not None and not item.done.done():
                item.done.set_result(item.effects)
        self.watchers.publish(set(changes.experiments), set(changes.jobs), changes.reports)
        self._changing = {}
        self._let_finished_go(changes)

    def _next(self) -> _Item | None:
        """The next event that may be taken now: from the queue and from inboxes in turn. None: there is none."""
        while True:
            if self._inboxes.ready and (self._from_inbox or self._queue.empty()):
                self._from_inbox = False
                item = self._inboxes.take()
                assert item is not None
                item.event = replace(item.event, at=max(item.event.at, self.clock()))  # It arrives now.
                return item
            if self._queue.empty():
                return None
            self._from_inbox = True
            item = self._queue.get_nowait()
            if not self._kept(item):
                return item

    def _kept(self, item: _Item) -> bool:
        """Whether an event has to wait until a policy has answered."""
        event = item.event
        if isinstance(event, ClusterEvent | PolicyAnswered | PolicyFailed):
            return False
        kept = self._inboxes.keep(event.experiment, item)
        if kept and self._inboxes.waiting(event.experiment) > MAX_INBOX and event.experiment in self._thoughts:
            self._thoughts[event.experiment].cancel(TOO_MANY)
        return kept

    def _drive(self, item: _Item, entries: list[Entry], changes: Changes, until: float) -> int:
        """One event and the policies' answers to the up-calls that follow; answers the bytes to be journalled.

        A policy in this process answers when nothing else is left to take, so that nothing comes between what it sees and the
        record of its answer: that is where recovery makes the up-call again. One that does not answer at once has until a time
        of the monotonic clock; from then on its experiment waits for it, and nothing else does.
        """
        work: deque[Event] = deque([item.event])
        calls: deque[UpCall] = deque()
        size = 0
        while work or calls:
            if not work:
                self._answer(calls.popleft(), work, until)
                continue
            event = work.popleft()
            for effect in self._handle(event, item):
                match effect:
                    case Record():
                        payload = encode(effect.event)
                        size += len(payload)
                        entries.append(Entry(effect.stream, kind_of(effect.event), payload))
                    case UpCall():
                        calls.append(effect)
                    case JobChanged() | ExperimentChanged() | ReportAccepted():
                        changes.note(effect)
                    case _:
                        item.effects.append(effect)
        return size

    def _handle(self, event: Event, item: _Item) -> list[Effect]:
        """The core's effects. A mistake in the core costs the experiment that it struck, not the others."""
        try:
            return self.core.handle(event)
        except UnknownExperimentError as error:
            if item.done is not None and not item.done.done():
                item.done.set_exception(error)
            return []
        except Exception as error:
            name = getattr(event, "experiment", "")
            if name not in self.core.experiments:
                raise
            _LOG.exception("experiment %s is failed: the core could not take %s", name, event)
            reason = f"a mistake in Hopyard's core on {type(event).__name__}: {type(error).__name__}: {error}"
            return quarantine(self.core, name, reason, event.at)

    def _answer(self, call: UpCall, work: deque[Event], until: float) -> None:
        name = call.experiment
        x = self.core.experiments[name]
        if x.in_flight is None or x.in_flight[0] != call.number:
            return
        why = self.given_up.get(name)
        if why:
            self.given_up[name] = ""
            work.append(PolicyFailed(call.at, name, call.number, why, unheard=True))
        elif why is not None:
            self._park(call, make_again(call, self.journal, self.patience))
        else:
            host = self._host(name)
            thought = self.patience.threads.start(lambda: host.answer(x, call))
            if thought.wait(max(min(HOLD_SECONDS, until - time.monotonic()), 0.0)):
                work.append(answer_of(thought, call))
            else:
                self._park(call, answer_later(thought, call, self.patience, self.program(name).spec.policy.name))

    # ------------------------------------------------------------------------------------------------ policies that think

    def _park(self, call: UpCall, answer: Coroutine[Any, Any, Thought]) -> None:
        """From now on only its experiment waits for an answer."""
        self.core.think(call.experiment)
        self._parked.append((call.experiment, self._await(call, answer)))

    def _start_thoughts(self) -> None:
        """What led to these up-calls is in the journal, from which a policy may have to be made again."""
        parked, self._parked = self._parked, []
        for name, waiting in parked:
            self._thoughts[name] = asyncio.create_task(waiting, name=f"policy of {name}")

    async def _await(self, call: UpCall, answer: Coroutine[Any, Any, Thought]) -> None:
        """Posts a policy's answer when it comes, or what came instead."""
        name = call.experiment
        try:
            thought = await answer
        except asyncio.CancelledError as error:
            if error.args != (TOO_MANY,):
                raise
            why = f"the policy has not answered up-call {call.number} while {MAX_INBOX} events came"
            thought = Thought(failure(call, why, unheard=True), None)
        except Exception as error:  # noqa: BLE001 - it costs this experiment, and no other
            _LOG.exception("experiment %s: its policy cannot be made again", name)
            why = f"the policy cannot be made again from the journal: {type(error).__name__}: {error}"
            thought = Thought(failure(call, why, unheard=True), None)
        event = thought.event
        if isinstance(event, PolicyFailed) and event.unheard:
            _LOG.warning("experiment %s: %s", name, event.error)
            self.hosts.pop(name, None)
            self.given_up[name] = ""
        elif thought.host is not None:
            self.hosts[name] = thought.host
            self.given_up.pop(name, None)
        if self._thoughts.get(name) is asyncio.current_task():
            del self._thoughts[name]
        self.post(replace(event, at=max(call.at, self.clock())))

    # ------------------------------------------------------------------------------------------------- what goes with them

    def _host(self, name: str) -> Host:
        """The policy of a stream: that of the experiment which it began with."""
        host = self.hosts.get(name)
        if host is None:
            spec = self.program(name).spec
            host = self.hosts[name] = LatePolicy(lambda: host_of(spec))
        return host

    def program(self, name: str) -> Program:
        """What an experiment's runs execute."""
        if name not in self._programs:
            self._programs[name] = program_of(experiment_of(self.core, name)[1].payload)
        return self._programs[name]

    def published(self, name: str) -> bool:
        """Whether an experiment's state is journalled and watchers were told of it; else they will be."""
        return name not in self._changing

    def install(self, x: Experiment, found: Recovered) -> None:
        """Takes a stream that was replayed apart."""
        self.core.install(x)
        self.hosts.update(found.hosts)
        self.given_up.update(found.given_up)

    def _let_finished_go(self, changes: Changes) -> None:
        """Finished experiments keep no policy and no generator, and the oldest of them no place in memory."""
        for name in changes.experiments:
            x, member = experiment_of(self.core, name)
            if member.phase.over:
                self.carrier.ended(name)
            if not x.phase.over:
                self._finished.pop(x.id, None)
            elif x.id not in self._finished:
                self._finished[x.id] = None
                if x.id in self._thoughts:  # It was failed meanwhile.
                    self._thoughts.pop(x.id).cancel()
        while len(self._finished) > MAX_FINISHED:
            name = next(iter(self._finished))
            del self._finished[name]
            for over in self.core.experiments[name].members:
                self._programs.pop(over, None)
            self.core.forget(name)
            self.hosts.pop(name, None)
            self.given_up.pop(name, None)
            self.journal.forget(name)


def experiment_of(core: Core, name: str) -> tuple[Experiment, Member]:
    """An experiment that the core has, with the stream that it belongs to.

    Raises:
        NotFound: It has not; names those there are.
    """
    found = core.find(name)
    if found is None:
        known = ", ".join(sorted(member for x in core.experiments.values() for member in x.members)) or "none"
        raise NotFound(f"there is no experiment {name!r}; there are: {known}")
    return found
