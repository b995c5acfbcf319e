"""The live shell around the core: events in from queues and timers, effects out once the journal has them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from hopyard.errors import NotFound
from hopyard.policy.vocabulary import ExperimentId, StreamId
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core import Core
from hopyard_engine.core.effects import Effect, Refused, UpCall
from hopyard_engine.core.events import (
    ClusterEvent,
    Event,
    JobHeld,
    JobOperated,
    PolicyAnswered,
    PolicyFailed,
    Requested,
    SlotReserved,
    Updated,
)
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.policy_host import Host
from hopyard_engine.policy_host.factory import host_of
from hopyard_scheduler.experiments.program import ExperimentProgram, program_of
from hopyard_scheduler.experiments.watchers import Watchers
from hopyard_scheduler.policy_process.placement import runs_inline
from hopyard_scheduler.policy_process.policy import QUICK_SECONDS, RemotePolicy
from hopyard_scheduler.policy_process.registry import Remotes
from hopyard_scheduler.runtime.ack_coalescing import acknowledged
from hopyard_scheduler.runtime.batch import MAX_BATCH_EVENTS, Batch, Item, Parked
from hopyard_scheduler.runtime.batch_delay import patient
from hopyard_scheduler.runtime.effect_executor import Carrier
from hopyard_scheduler.runtime.event_inbox import Inboxes
from hopyard_scheduler.runtime.journal import Journal
from hopyard_scheduler.runtime.projections import Changes
from hopyard_scheduler.runtime.recovery import Recovered
from hopyard_scheduler.search_plan.projection import PlanRows

_LOG = logging.getLogger(__name__)

MAX_EVENTS: Final = 100_000
"""Events from outside that may wait; then agents' streams wait too."""

DEFAULT_POLICY_SECONDS: Final = 10.0
"""How long a policy in a process may take over an up-call."""

MAX_INBOX: Final = 20_000
"""Events that may wait for an experiment whose policy is asked; with more, the policy has taken too long."""

_TOO_MANY: Final = "too many events wait"
"""With this message the wait for a policy is cancelled for which too many events wait."""

GATHER_SECONDS: Final = 0.005
"""How long events that nobody waits for are kept for others to share their append."""

MAX_FINISHED: Final = 32
"""Finished experiments that stay in memory; older ones are read from the journal again when somebody asks."""


class Live:
    """Drives the core. One loop takes events in batches; a batch's effects go out when its records are durable.

    Args:
        journal: Begun.
        carrier: Carries out effects.
        clock: Seconds since the epoch.
        remotes: Makes policies that run in processes.
    """

    def __init__(
        self,
        journal: Journal,
        carrier: Carrier,
        remotes: Remotes,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.core = Core()
        self.journal = journal
        self.remotes = remotes
        self.carrier = carrier
        self.watchers = Watchers()
        self.clock = clock
        self.hosts: dict[str, Host | RemotePolicy] = {}
        self._queue: asyncio.Queue[Item] = asyncio.Queue()
        self._room = asyncio.Semaphore(MAX_EVENTS)
        self._arrived: deque[Item] = deque()
        self._inboxes = Inboxes[Item](self.core.thinks)
        self._from_inbox = False
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._finished: dict[str, None] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.turn = asyncio.Lock()
        """Held while a batch is under way: whoever takes it sees the core between two, all effects carried out."""
        self._changing: Mapping[str, object] = {}
        self._plans = PlanRows()
        self.batched: Callable[[], None] = lambda: None
        """Called after each batch."""
        self.leaves: Callable[[Stream], None] = lambda stream: None
        """Told of each stream that is over and leaves the core."""
        carrier.attach(self.core, self.post, self.program)
        remotes.attach(self.post, clock)

    # ------------------------------------------------------------------------------------------------------------ events

    def post(self, event: Event) -> None:
        """Queues an event from inside, such as an answer or a timer: never refused, never waiting."""
        self._queue.put_nowait(Item(event, outside=False))

    async def submit(self, event: Event) -> None:
        """Queues an event from outside, waiting while too many wait already."""
        await self._room.acquire()
        self._queue.put_nowait(Item(event))

    async def apply(self, event: Event) -> list[Effect]:
        """Takes an event and returns its outward effects, once it is journalled and they went out.

        Raises:
            UnknownStreamError: The event's experiment is not there.
        """
        await self._room.acquire()
        done: asyncio.Future[list[Effect]] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(Item(event, done=done))
        return await done

    async def operate(self, event: JobHeld | JobOperated | SlotReserved | Requested | Updated) -> str:
        """Takes what a person wants. Returns what stood against it; empty: it was carried out."""
        effects = await self.apply(event)
        return next((str(effect.reason) for effect in effects if isinstance(effect, Refused)), "")

    async def run(self) -> None:
        """Takes events until cancelled. What rises here is the scheduler's end: another one writes the journal."""
        try:
            while True:
                if not (self._arrived or self._inboxes.ready):
                    self._arrived.append(await self._queue.get())
                    await self._gather()
                async with self.turn:
                    await self._take()
        finally:
            for asking in self._asking.values():
                asking.cancel()

    async def drained(self) -> None:
        """Waits until everything that was queued is journalled and carried out."""
        await self._queue.join()

    async def _gather(self) -> None:
        """Waits for company while nobody waits for what has arrived."""
        end = asyncio.get_running_loop().time() + GATHER_SECONDS
        while len(self._arrived) < MAX_BATCH_EVENTS and patient(self.core, self._arrived[-1].event):
            try:
                async with asyncio.timeout_at(end):
                    self._arrived.append(await self._queue.get())
            except TimeoutError:
                return

    async def _take(self) -> None:
        """One batch: as many waiting events as fit into its bounds, one append, then their effects."""
        self._arrive()
        batch = Batch(self.core, self._next, lambda call: self._host(call.stream))
        self._changing = batch.changes.experiments
        batch.drive()
        await self._ask_processes(batch)
        self._cut_short()
        at, changes = self.clock(), batch.changes
        await self.journal.append(batch.entries, changes.rows(self.core, at, self._plans), at)
        await self.carrier.clear(effect for item in batch.items for effect in item.effects)
        for effect in acknowledged(effect for item in batch.items for effect in item.effects):
            self.carrier.carry(effect)
        for item in batch.items:
            self._queue.task_done()
            if item.outside:
                self._room.release()
            if item.done is not None and not item.done.done():
                if item.error is not None:
                    item.done.set_exception(item.error)
                else:
                    item.done.set_result(item.effects)
        self.watchers.publish(set(changes.experiments), set(changes.jobs), changes.reports)
        self._changing = {}
        self._let_finished_go(changes)
        self.batched()
        await asyncio.sleep(0)  # What was carried out goes out before the next batch takes this thread.

    def _arrive(self) -> None:
        while not self._queue.empty() and len(self._arrived) < MAX_BATCH_EVENTS:
            self._arrived.append(self._queue.get_nowait())

    def _next(self) -> Item | None:
        """The next event that may be taken now: from those that arrived and from inboxes in turn. None: there is none."""
        while True:
            if self._inboxes.ready and (self._from_inbox or not self._arrived):
                self._from_inbox = False
                item = self._inboxes.take()
                assert item is not None
                item.event = replace(item.event, at=max(item.event.at, self.clock()))  # It arrives now.
                return item
            if not self._arrived:
                return None
            self._from_inbox = True
            item = self._arrived.popleft()
            event = item.event
            if isinstance(event, ClusterEvent | PolicyAnswered | PolicyFailed):
                return item
            if not self._inboxes.keep(event.stream, item):
                return item

    # --------------------------------------------------------------------------------------------- policies in processes

    async def _ask_processes(self, batch: Batch) -> None:
        """Asks the policies of a batch that run in processes. The answers of quick ones go into the batch, and share its append."""
        clock = asyncio.get_running_loop().time
        end = clock() + QUICK_SECONDS
        while parked := batch.take_parked():
            asked = [(self._await(one), one.policy.quick) for one in parked]
            quick = [asking for asking, soon in asked if soon]
            if not quick or clock() >= end:
                return
            await asyncio.wait(quick, timeout=end - clock())
            self._arrive()
            batch.drive()

    def _await(self, parked: Parked) -> asyncio.Task[None]:
        """From now on the answer to an up-call is waited for, beside everything else."""
        name = parked.call.stream
        asking = asyncio.create_task(self._ask(parked.call, parked.policy), name=f"policy of {name}")
        self._asking[name] = asking
        return asking

    def await_answer(self, call: UpCall) -> None:
        """An up-call of a recovered journal that has no answer yet goes to the process that its policy runs in."""
        host = self._host(call.stream)
        assert isinstance(host, RemotePolicy)
        self.core.think(call.stream)
        self._await(Parked(call, host))

    async def _ask(self, call: UpCall, policy: RemotePolicy) -> None:
        """Posts a policy's answer when it comes, or why there is none."""
        name = call.stream
        event: PolicyAnswered | PolicyFailed
        try:
            event = await policy.answer(self.core.streams[name], call, self.turn)
        except asyncio.CancelledError as error:
            if error.args != (_TOO_MANY,):
                raise
            why = Reason.of(ReasonCode.POLICY_BACKLOG, up_call=call.number, events=MAX_INBOX)
            event = PolicyFailed(call.at, name, call.number, why, unheard=True)
        except Exception as error:  # noqa: BLE001 - it costs this experiment, and no other
            _LOG.exception("experiment %s: its policy cannot be asked", name)
            why = Reason.of(ReasonCode.POLICY_HOST_FAILED, error=f"{type(error).__name__}: {error}")
            event = PolicyFailed(call.at, name, call.number, why, unheard=True)
        if isinstance(event, PolicyFailed) and event.unheard:
            _LOG.warning("experiment %s: %s", name, event.reason)
            await policy.give_up()
        if self._asking.get(name) is asyncio.current_task():
            del self._asking[name]
        self.post(replace(event, at=max(call.at, self.clock())))

    def _cut_short(self) -> None:
        """Policies for which too many events wait are given up before their time."""
        for name, asking in self._asking.items():
            if self._inboxes.waiting(StreamId(name)) > MAX_INBOX:
                asking.cancel(_TOO_MANY)

    # ------------------------------------------------------------------------------------------------- what goes with them

    def _host(self, name: StreamId) -> Host | RemotePolicy:
        """The policy of a stream: that of the experiment which it began with."""
        host = self.hosts.get(name)
        if host is None:
            program = self.program(self.core.streams[name].founder.id)
            if runs_inline(program.spec.policy):
                host = host_of(program.spec)
            else:
                host = self.remotes.policy(name, program, lambda: self.journal.read(name))
            self.hosts[name] = host
        return host

    def absent(self, name: StreamId) -> Reason | None:
        """Why the policy of a stream has no process that could answer it; None: it has, or needs none."""
        host = self.hosts.get(name)
        return host.absent if isinstance(host, RemotePolicy) else None

    def program(self, name: ExperimentId) -> ExperimentProgram:
        """What an experiment's runs execute."""
        return program_of(experiment_of(self.core, name)[1].payload)

    def published(self, name: ExperimentId) -> bool:
        """Whether an experiment's state is journalled and watchers were told of it; else they will be."""
        return name not in self._changing

    def install(self, stream: Stream, found: Recovered) -> None:
        """Takes a stream that was replayed apart, and holds no slots."""
        outstanding = self.core.admit(stream)
        self.hosts.update(found.hosts)
        for event in found.unanswered:
            self.post(event)
        for call in found.waiting:
            self.await_answer(call)
        for effect in outstanding:
            self.carrier.carry(effect)

    def _let_finished_go(self, changes: Changes) -> None:
        """Finished experiments keep no policy and no generator, and the oldest of them no place in memory."""
        for name in changes.experiments:
            stream, experiment = experiment_of(self.core, ExperimentId(name))
            if experiment.state.ended:
                self.carrier.ended(StreamId(name))
                self._plans.forget(name)
            if not stream.state.ended:
                self._finished.pop(stream.id, None)
            elif stream.id not in self._finished:
                self._finished[stream.id] = None
                if stream.id in self._asking:  # It was failed meanwhile.
                    self._asking.pop(stream.id).cancel()
                if isinstance(self.hosts.get(stream.id), RemotePolicy):
                    del self.hosts[stream.id]
                    closing = asyncio.create_task(
                        self.remotes.over(stream.id), name=f"end of the policy of {stream.id}"
                    )
                    self._closing.add(closing)
                    closing.add_done_callback(self._closing.discard)
        while len(self._finished) > MAX_FINISHED:
            name = next(iter(self._finished))
            del self._finished[name]
            self.leaves(self.core.streams[StreamId(name)])
            self.core.forget(StreamId(name))
            self.hosts.pop(name, None)
            self.journal.forget(StreamId(name))


def experiment_of(core: Core, name: ExperimentId) -> tuple[Stream, Experiment]:
    """An experiment that the core has, with the stream that it belongs to.

    Raises:
        NotFound: It has not; names those there are.
    """
    found = core.find(name)
    if found is None:
        known = (
            ", ".join(sorted(experiment for stream in core.streams.values() for experiment in stream.experiments))
            or "none"
        )
        raise NotFound(f"there is no experiment {name!r}; there are: {known}")
    return found
