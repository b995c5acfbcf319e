"""The live shell around the core: events in from queues and timers, effects out once the journal has them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from hopyard.errors import NotFound
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
from hopyard_scheduler.core.events import Event, JobOperated, Updated
from hopyard_scheduler.core.experiment import Experiment
from hopyard_scheduler.core.member import Member
from hopyard_scheduler.journal import Entry, Journal
from hopyard_scheduler.policies import host_of
from hopyard_scheduler.policyhost import Host
from hopyard_scheduler.program import Program, program_of
from hopyard_scheduler.projections import Changes
from hopyard_scheduler.watch import Watchers

_LOG = logging.getLogger(__name__)

MAX_EVENTS: Final = 100_000
"""Events from outside that may wait; then agents' streams wait too."""

MAX_BATCH_EVENTS: Final = 1_000
MAX_BATCH_BYTES: Final = 8 << 20
MAX_BATCH_SECONDS: Final = 0.02
"""What shares one append: no more events or bytes than these, and no more than this time at a stretch in the core."""

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
    """

    def __init__(self, journal: Journal, carrier: Carrier, clock: Callable[[], float] = time.time) -> None:
        self.core = Core()
        self.journal = journal
        self.carrier = carrier
        self.watchers = Watchers()
        self.clock = clock
        self.hosts: dict[str, Host] = {}
        self._programs: dict[str, Program] = {}
        self._queue: asyncio.Queue[_Item] = asyncio.Queue()
        self._room = asyncio.Semaphore(MAX_EVENTS)
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
        while True:
            first = await self._queue.get()
            async with self.turn:
                await self._take(first)

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
        size = self._drive(first, entries, changes)
        while len(batch) < MAX_BATCH_EVENTS and size < MAX_BATCH_BYTES and time.monotonic() < until:
            if self._queue.empty():
                break
            batch.append(self._queue.get_nowait())
            size += self._drive(batch[-1], entries, changes)
        at = self.clock()
        await self.journal.append(entries, changes.rows(self.core, at), at)
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

    def _drive(self, item: _Item, entries: list[Entry], changes: Changes) -> int:
        """One event and the policies' answers to the up-calls that follow; answers the bytes to be journalled.

        A policy in this process answers when nothing else is left to take, so that nothing comes between what it sees and the
        record of its answer: that is where recovery makes the up-call again.
        """
        work: deque[Event] = deque([item.event])
        calls: deque[UpCall] = deque()
        size = 0
        while work or calls:
            if not work:
                self._answer(calls.popleft(), work)
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

    def _answer(self, call: UpCall, work: deque[Event]) -> None:
        x = self.core.experiments[call.experiment]
        if x.in_flight is not None and x.in_flight[0] == call.number:
            work.append(self._host(call.experiment).answer(x, call))

    # ------------------------------------------------------------------------------------------------- what goes with them

    def _host(self, name: str) -> Host:
        """The policy of a stream: that of the experiment which it began with."""
        host = self.hosts.get(name)
        if host is None:
            host = self.hosts[name] = host_of(self.program(name).spec)
        return host

    def program(self, name: str) -> Program:
        """What an experiment's runs execute."""
        if name not in self._programs:
            self._programs[name] = program_of(experiment_of(self.core, name)[1].payload)
        return self._programs[name]

    def published(self, name: str) -> bool:
        """Whether an experiment's state is journalled and watchers were told of it; else they will be."""
        return name not in self._changing

    def install(self, x: Experiment, host: Host) -> None:
        """Takes a stream that was replayed apart."""
        self.core.install(x)
        self.hosts[x.id] = host

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
        while len(self._finished) > MAX_FINISHED:
            name = next(iter(self._finished))
            del self._finished[name]
            for over in self.core.experiments[name].members:
                self._programs.pop(over, None)
            self.core.forget(name)
            self.hosts.pop(name, None)
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
