"""The live shell around the core: events in from queues and timers, effects out once the journal has them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from hopyard.errors import NotFound
from hopyard.v1 import resource_manager_pb2
from hopyard_scheduler.converters import command_to_proto, key_to_proto
from hopyard_scheduler.core import Core, UnknownExperimentError
from hopyard_scheduler.core.effects import (
    Acknowledge,
    AskOutside,
    Effect,
    ExperimentChanged,
    FinalPerformance,
    ForgetSnapshot,
    JobChanged,
    Noted,
    Record,
    ReportAccepted,
    Send,
    SetTimer,
    UpCall,
    Welcome,
)
from hopyard_scheduler.core.events import Event, JobOperated, TimerElapsed
from hopyard_scheduler.core.experiment import Experiment
from hopyard_scheduler.journal import Journal
from hopyard_scheduler.outside import Generators, unanswerable
from hopyard_scheduler.policies import host_of
from hopyard_scheduler.policyhost import Host
from hopyard_scheduler.program import Program, program_of
from hopyard_scheduler.projections import Changes
from hopyard_scheduler.sessions import Sessions
from hopyard_scheduler.store import SnapshotStore
from hopyard_scheduler.watch import Watchers

_LOG = logging.getLogger(__name__)

MAX_EVENTS = 100_000
"""Events that may wait; then agents' streams wait too."""

MAX_BATCH = 1_000
"""Events that share one append."""


@dataclass(slots=True)
class _Item:
    """An event on its way, and who waits until it is journalled."""

    event: Event
    done: asyncio.Future[list[Effect]] | None = None
    effects: list[Effect] = field(default_factory=list)


class Live:
    """Drives the core. One loop takes events in batches; a batch's effects go out when its records are durable.

    Args:
        journal: Begun.
        sessions: Where commands go.
        store: Deletes what nobody needs.
        heartbeat_seconds: How often agents give a sign of life.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        journal: Journal,
        sessions: Sessions,
        store: SnapshotStore,
        heartbeat_seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.core = Core()
        self.journal = journal
        self.sessions = sessions
        self.watchers = Watchers()
        self.clock = clock
        self.heartbeat_seconds = heartbeat_seconds
        self.generators: Generators | None = None
        self.hosts: dict[str, Host] = {}
        self.programs: dict[str, Program] = {}
        self._store = store
        self._queue: asyncio.Queue[_Item] = asyncio.Queue(MAX_EVENTS)
        self._timers: dict[tuple[str, str], asyncio.TimerHandle] = {}

    # ------------------------------------------------------------------------------------------------------------ events

    def post(self, event: Event) -> None:
        """Queues an event from inside: an answer, a timer."""
        self._queue.put_nowait(_Item(event))

    async def submit(self, event: Event) -> None:
        """Queues an event from outside, waiting while too many wait already."""
        await self._queue.put(_Item(event))

    async def apply(self, event: Event) -> list[Effect]:
        """Takes an event and returns its outward effects, once it is journalled and they went out.

        Raises:
            UnknownExperimentError: The event's experiment is not there.
        """
        done: asyncio.Future[list[Effect]] = asyncio.get_running_loop().create_future()
        await self._queue.put(_Item(event, done))
        return await done

    async def operate_job(self, event: JobOperated) -> str:
        """Takes a person's act on a job. Returns what stood against it; empty: it was carried out."""
        effects = await self.apply(event)
        return next((e.text for e in effects if isinstance(e, Noted) and e.text.startswith("refused")), "")

    async def run(self) -> None:
        """Takes events until cancelled. What rises here is the scheduler's end: a lost epoch, or a mistake in the core."""
        while True:
            batch = [await self._queue.get()]
            while len(batch) < MAX_BATCH and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            await self._take(batch)

    async def _take(self, batch: list[_Item]) -> None:
        records: list[Record] = []
        outward: list[Effect] = []
        changes = Changes()
        for item in batch:
            try:
                self._drive(item.event, records, item.effects, changes)
                outward += item.effects
            except UnknownExperimentError as error:
                if item.done is not None:
                    item.done.set_exception(error)
                    item.done = None
        at = self.clock()
        await self.journal.append(records, changes.rows(self.core, at), at)
        for effect in outward:
            self.carry(effect)
        self.watchers.publish(set(changes.experiments), set(changes.jobs), changes.reports)
        for item in batch:
            if item.done is not None and not item.done.done():
                item.done.set_result(item.effects)

    def _drive(self, event: Event, records: list[Record], outward: list[Effect], changes: Changes) -> None:
        """One event, and the policies' answers to the up-calls that follow.

        A policy in this process answers when nothing else is left to take, so that nothing comes between what it sees and the
        record of its answer: that is where recovery makes the up-call again.
        """
        work: deque[Event] = deque([event])
        calls: deque[UpCall] = deque()
        while work or calls:
            if not work:
                self._answer(calls.popleft(), work)
                continue
            for effect in self.core.handle(work.popleft()):
                match effect:
                    case Record():
                        records.append(effect)
                    case UpCall():
                        calls.append(effect)
                    case JobChanged() | ExperimentChanged() | ReportAccepted():
                        changes.note(effect)
                    case _:
                        outward.append(effect)

    def _answer(self, call: UpCall, work: deque[Event]) -> None:
        x = self.core.experiments[call.experiment]
        if x.in_flight is not None and x.in_flight[0] == call.number:
            work.append(self._host(call.experiment).answer(x, call))

    def _host(self, name: str) -> Host:
        host = self.hosts.get(name)
        if host is None:
            host = self.hosts[name] = host_of(self.program(name).spec)
        return host

    def program(self, name: str) -> Program:
        """What an experiment's runs execute."""
        if name not in self.programs:
            self.programs[name] = program_of(self.core.experiments[name].payload)
        return self.programs[name]

    # ----------------------------------------------------------------------------------------------------------- effects

    def carry(self, effect: Effect) -> None:
        """Carries out one effect whose event is journalled."""
        match effect:
            case Send():
                self._send(effect)
            case Acknowledge():
                ack = resource_manager_pb2.ChannelAck(run=key_to_proto(effect.run), sequence=effect.sequence)
                self._to_node_of(effect, resource_manager_pb2.AgentSessionResponse(ack=ack))
            case Welcome():
                self._welcome(effect)
            case AskOutside():
                self._ask(effect)
            case FinalPerformance():
                if self.generators is not None:
                    self.generators.ask(effect)
            case SetTimer():
                self._set_timer(effect)
            case ForgetSnapshot():
                self._forget(effect)
            case Noted():
                _LOG.info("experiment %s, job %s: %s", effect.experiment, effect.job or "-", effect.text)
            case _:
                raise TypeError(f"effect {type(effect).__name__} is not for the shell")

    def _send(self, send: Send) -> None:
        session = self.sessions.of(send.node)
        if session is not None:
            program = self.program(send.run.experiment)
            command = command_to_proto(
                send.run, send.sequence, self.journal.epoch, send.body, program, self.sessions.addresses
            )
            session.send(resource_manager_pb2.AgentSessionResponse(command=command))

    def _to_node_of(self, ack: Acknowledge, message: resource_manager_pb2.AgentSessionResponse) -> None:
        """Acknowledgements go to the node whose channel it is; for a job that is no more, to whoever asks."""
        x = self.core.experiments.get(ack.run.experiment)
        job = x.jobs.get(ack.run.job) if x is not None else None
        channel = job.channels.get((ack.run.attempt, ack.run.rank)) if job is not None else None
        session = self.sessions.of(channel.node) if channel is not None else None
        if session is not None:
            session.send(message)

    def _welcome(self, welcome: Welcome) -> None:
        session = self.sessions.of(welcome.node)
        if session is None:
            return
        message = resource_manager_pb2.AgentWelcome(
            epoch=self.journal.epoch,
            lease_seconds=self.sessions.lease_seconds,
            heartbeat_seconds=self.heartbeat_seconds,
            unknown_runs=[key_to_proto(key) for key in welcome.unknown],
        )
        session.send(resource_manager_pb2.AgentSessionResponse(welcome=message))
        for send in self.core.unacknowledged(welcome.node):
            self._send(send)

    def _ask(self, question: AskOutside) -> None:
        if question.kind == "create_job" and self.generators is not None:
            self.generators.ask(question)
        else:
            self.post(unanswerable(question, self.clock()))

    def _set_timer(self, timer: SetTimer) -> None:
        key = (timer.experiment, timer.ticket)
        running = self._timers.pop(key, None)
        if running is not None:
            running.cancel()
        if timer.at is not None:
            delay = max(timer.at - self.clock(), 0.0)
            self._timers[key] = asyncio.get_running_loop().call_later(delay, self._elapsed, key, timer.at)

    def _elapsed(self, key: tuple[str, str], due: float) -> None:
        self._timers.pop(key, None)
        self.post(TimerElapsed(max(self.clock(), due), *key))

    def _forget(self, effect: ForgetSnapshot) -> None:
        for node in effect.nodes:
            session = self.sessions.of(node)
            if session is not None:
                forget = resource_manager_pb2.ForgetSnapshots(sha256=[effect.sha256])
                session.send(resource_manager_pb2.AgentSessionResponse(forget_snapshots=forget))
        if effect.stored:
            self._store.delete(effect.experiment, effect.sha256)

    def stop(self) -> None:
        """Cancels the timers."""
        for handle in self._timers.values():
            handle.cancel()
        self._timers.clear()


def experiment_of(core: Core, name: str) -> Experiment:
    """An experiment that the core has.

    Raises:
        NotFound: It has not; names those there are.
    """
    found = core.experiments.get(name)
    if found is None:
        known = ", ".join(sorted(core.experiments)) or "none"
        raise NotFound(f"there is no experiment {name!r}; there are: {known}")
    return found
