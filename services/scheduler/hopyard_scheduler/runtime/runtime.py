"""The event loop around the core (the state machine of the engine).

It journals queued events in batches, then carries out their effects.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from hopyard.errors import NotFound
from hopyard.policy.vocabulary import ExperimentId, StreamId
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard.v1 import appstat_pb2
from hopyard_engine.core import Core
from hopyard_engine.core.effects import Effect, Record, Refused, UpCall
from hopyard_engine.core.events import (
    ClusterEvent,
    Event,
    JobHeld,
    JobOperated,
    JobsRetried,
    PolicyAnswered,
    PolicyFailed,
    Requested,
    SlotReserved,
    StreamDeleted,
    Updated,
)
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.journal.codec import encode, kind_of
from hopyard_engine.policy_host import Host
from hopyard_engine.policy_host.factory import host_of
from hopyard_scheduler.experiments.program import ExperimentProgram, program_of, renamed
from hopyard_scheduler.experiments.watchers import Watchers
from hopyard_scheduler.policy_process.placement import runs_inline
from hopyard_scheduler.policy_process.policy import QUICK_SECONDS, RemotePolicy
from hopyard_scheduler.policy_process.registry import PolicyProcesses
from hopyard_scheduler.runtime.ack_coalescing import acknowledged
from hopyard_scheduler.runtime.batch import MAX_BATCH_EVENTS, Batch, Item, PendingUpCall
from hopyard_scheduler.runtime.batch_delay import patient
from hopyard_scheduler.runtime.effect_executor import EffectExecutor
from hopyard_scheduler.runtime.event_inbox import EventInboxes
from hopyard_scheduler.runtime.journal import Journal, JournalEntry
from hopyard_scheduler.runtime.projections import Changes
from hopyard_scheduler.runtime.recovery import RecoveryResult
from hopyard_scheduler.search_plan.projection import PlanRows

_LOG = logging.getLogger(__name__)

MAX_EVENTS: Final = 100_000
"""Maximum number of queued events of clients and agents. Beyond it, `submit` and `apply` wait, and so do the sessions."""

DEFAULT_POLICY_SECONDS: Final = 10.0
"""Time limit in seconds of a policy process for one up-call."""

MAX_INBOX: Final = 20_000
"""Maximum number of events that wait while an up-call of their stream is unanswered. Beyond it, the up-call fails."""

_TOO_MANY: Final = "too many events wait"
"""Cancellation message of an up-call that fails because too many events wait."""

GATHER_SECONDS: Final = 0.005
"""Seconds for which non-urgent events wait for others to share their append."""

MAX_FINISHED: Final = 32
"""Maximum number of finished streams in memory. Older ones are replayed from the journal on demand."""


class Runtime:
    """Drives the core: handles queued events in batches, journals them, and carries out their effects.

    Senders add events with `post`, `submit`, `apply` or `operate`; one task executes `run`.

    Args:
        journal: The journal. Its `begin` must have returned before `run` is called.
        carrier: Carries out outward effects: those that concern something outside the core and its journal.
        policies: Creates policies that run in processes.
        clock: Returns seconds since the Unix epoch.
    """

    def __init__(
        self,
        journal: Journal,
        carrier: EffectExecutor,
        policies: PolicyProcesses,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.core = Core()
        self.journal = journal
        self.policies = policies
        self.carrier = carrier
        self.watchers = Watchers()
        self.clock = clock
        self.hosts: dict[StreamId, Host | RemotePolicy] = {}
        self._queue: asyncio.Queue[Item] = asyncio.Queue()
        self._room = asyncio.Semaphore(MAX_EVENTS)
        self._arrived: deque[Item] = deque()
        self._inboxes = EventInboxes[Item](self.core.awaits_answer)
        self._from_inbox = False
        self._asking: dict[StreamId, asyncio.Task[None]] = {}
        self._finished: dict[StreamId, None] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.turn = asyncio.Lock()
        """Locked during a batch. Who locks it sees the core between two batches, with all effects carried out."""
        self._changing: Mapping[str, object] = {}
        self._plans = PlanRows()
        self.batched: Callable[[], None] = lambda: None
        """Called after each batch."""
        self.leaves: Callable[[Stream], None] = lambda stream: None
        """Called with each finished stream before it leaves the core."""
        carrier.attach(self.core, self.post, self.program)
        policies.attach(self.post, clock)

    # ------------------------------------------------------------------------------------------------------------ events

    def post(self, event: Event, payload: bytes = b"") -> None:
        """Queue an event that the scheduler itself created, such as an answer or a timer, without a limit.

        Args:
            event: The event.
            payload: The payload of its record, if it is known; empty: the batch encodes the event.
        """
        self._queue.put_nowait(Item(event, outside=False, payload=payload))

    async def submit(self, event: Event) -> None:
        """Queue an event of a client or an agent, and return before it is handled. Wait while `MAX_EVENTS` of them are queued."""
        await self._room.acquire()
        self._queue.put_nowait(Item(event))

    async def apply(self, event: Event) -> list[Effect]:
        """Queue an event and wait until it is journalled and its effects are carried out.

        Returns:
            The outward effects of the event: those that concern something outside the core and its journal, such as
            commands to agents.

        Raises:
            UnknownStreamError: The stream of the event is not in the core.
        """
        await self._room.acquire()
        done: asyncio.Future[list[Effect]] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(Item(event, done=done))
        return await done

    async def operate(self, event: JobHeld | JobOperated | JobsRetried | SlotReserved | Requested | Updated) -> str:
        """Apply an operation that a person requested, and wait until it is carried out.

        Returns:
            Why the operation was refused, as a sentence; empty: it was carried out.

        Raises:
            UnknownStreamError: The stream of the event is not in the core.
        """
        effects = await self.apply(event)
        return next((str(effect.reason) for effect in effects if isinstance(effect, Refused)), "")

    async def delete(self, events: Sequence[StreamDeleted]) -> bool:
        """Delete streams that have ended: from the journal with all rows, in one transaction with the events, and from the core.

        Args:
            events: One event for each stream. The caller prevents that a stream is loaded into the core meanwhile.

        The caller must not cancel it: the core and the journal would then disagree on what is deleted.

        Returns:
            False if one of the streams is live, or has other experiments than its event says. Then nothing is deleted.
        """
        async with self.turn:
            streams = [(self.core.streams.get(event.stream), event) for event in events]
            if any(
                s is not None and not (s.state.ended and set(s.experiments) == {*e.experiments}) for s, e in streams
            ):
                return False
            records = [effect for event in events for effect in self.core.handle(event) if isinstance(effect, Record)]
            entries = [JournalEntry(one.stream, kind_of(one.event), encode(one.event)) for one in records]
            deleted = [appstat_pb2.DeletedStream(stream=e.stream, experiments=e.experiments) for e in events]
            await self.journal.append(entries, [], self.clock(), deleted)
            for event in events:
                self._finished.pop(event.stream, None)
                self.hosts.pop(event.stream, None)
                self.journal.forget(event.stream)
        return True

    async def run(self) -> None:
        """Handle queued events until cancelled.

        An error ends the scheduler: for example, StaleEpoch is raised when another scheduler has begun a newer epoch.
        """
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
        """Wait until the queue is empty: all events, also those queued meanwhile, are journalled and their effects carried out."""
        await self._queue.join()

    async def _gather(self) -> None:
        """Wait up to `GATHER_SECONDS` for further events.

        Return early when an event arrives that must not be delayed (`patient` is False for it), or when the batch is
        full.
        """
        end = asyncio.get_running_loop().time() + GATHER_SECONDS
        while len(self._arrived) < MAX_BATCH_EVENTS and patient(self.core, self._arrived[-1].event):
            try:
                async with asyncio.timeout_at(end):
                    self._arrived.append(await self._queue.get())
            except TimeoutError:
                return

    async def _take(self) -> None:
        """Process one batch: handle events, append their records, carry out their effects, and notify callers and watchers."""
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
        await asyncio.sleep(0)  # Let the messages be sent before the next batch blocks the thread.

    def _arrive(self) -> None:
        while not self._queue.empty() and len(self._arrived) < MAX_BATCH_EVENTS:
            self._arrived.append(self._queue.get_nowait())

    def _next(self) -> Item | None:
        """Return the next event to handle, alternating between arrived events and inboxes; None: there is none.

        An arrived event whose stream waits for its policy process is moved to the inbox of the stream.
        """
        while True:
            if self._inboxes.ready and (self._from_inbox or not self._arrived):
                self._from_inbox = False
                item = self._inboxes.take()
                assert item is not None
                # The event counts as arrived now.
                item.event = replace(item.event, at=max(item.event.at, self.clock()))
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
        """Send the up-calls of a batch to policy processes. Answers within `QUICK_SECONDS` are handled in the same batch.

        Only processes that are expected to answer quickly (`RemotePolicy.quick`) are waited for. Later answers arrive
        as events.
        """
        clock = asyncio.get_running_loop().time
        end = clock() + QUICK_SECONDS
        while parked := batch.take_parked():
            asked = [(self._await(one), one.policy.quick) for one in parked]
            # Let the tasks start: a task that `_cut_short` cancels before its start would never report a failure.
            await asyncio.sleep(0)
            quick = [asking for asking, soon in asked if soon]
            if not quick or clock() >= end:
                return
            await asyncio.wait(quick, timeout=end - clock())
            self._arrive()
            batch.drive()

    def _await(self, parked: PendingUpCall) -> asyncio.Task[None]:
        """Start and return a task that sends an up-call to its policy process and posts the answer as an event."""
        name = parked.call.stream
        asking = asyncio.create_task(self._ask(parked.call, parked.policy), name=f"policy of {name}")
        self._asking[name] = asking
        return asking

    def await_answer(self, call: UpCall) -> None:
        """Send an up-call that recovery found unanswered to its policy process. The answer arrives later as an event."""
        host = self._host(call.stream)
        assert isinstance(host, RemotePolicy)
        self.core.begin_up_call(call.stream)
        self._await(PendingUpCall(call, host))

    async def _ask(self, call: UpCall, policy: RemotePolicy) -> None:
        """Send an up-call to a policy process, and post its answer or failure as an event."""
        name = call.stream
        event: PolicyAnswered | PolicyFailed
        try:
            event = await policy.answer(self.core.streams[name], call, self.turn)
        except asyncio.CancelledError as error:
            if error.args != (_TOO_MANY,):
                raise
            why = Reason.of(ReasonCode.POLICY_BACKLOG, up_call=call.number, events=MAX_INBOX)
            event = PolicyFailed(call.at, name, call.number, why, unheard=True)
        except Exception as error:  # noqa: BLE001 - any error fails only this experiment
            _LOG.exception("experiment %s: its policy cannot be asked", name)
            why = Reason.of(ReasonCode.POLICY_HOST_FAILED, error=f"{type(error).__name__}: {error}")
            event = PolicyFailed(call.at, name, call.number, why, unheard=True)
        task = asyncio.current_task()
        assert task is not None
        if self._asking.get(name) is task:
            # The outcome is known: a cancellation by `_cut_short` would only lose it.
            del self._asking[name]
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        if isinstance(event, PolicyFailed) and event.unheard:
            _LOG.warning("experiment %s: %s", name, event.reason)
            await policy.give_up()
        recorded = policy.recorded
        if recorded is not None and recorded.event is event:
            self.post(event, recorded.payload)
        else:
            self.post(replace(event, at=max(call.at, self.clock())))

    def _cut_short(self) -> None:
        """Cancel the up-calls to policy processes for which more than `MAX_INBOX` events wait.

        Each of them then fails, which pauses its experiment.
        """
        for name, asking in self._asking.items():
            # Once: a second cancellation would reach the task while it gives the policy up, and nobody would get an answer.
            if self._inboxes.waiting(name) > MAX_INBOX and not asking.cancelling():
                asking.cancel(_TOO_MANY)

    # ----------------------------------------------------------------------------- policies, programs and finished streams

    def _host(self, name: StreamId) -> Host | RemotePolicy:
        """Return the policy of a stream. On first use, create it from the program of the stream's first experiment."""
        host = self.hosts.get(name)
        if host is None:
            program = self.program(self.core.streams[name].founder.id)
            if runs_inline(program.spec.policy):
                host = host_of(program.spec)
            else:
                host = self.policies.policy(name, program, lambda: self.journal.read(name))
            self.hosts[name] = host
        return host

    def absent(self, name: StreamId) -> Reason | None:
        """Return why no process is connected for the policy of a stream; None: one is connected or none is needed."""
        host = self.hosts.get(name)
        return host.absent if isinstance(host, RemotePolicy) else None

    def program(self, name: ExperimentId) -> ExperimentProgram:
        """Return the program of the experiment with the id `name`. Its specification names the present metric.

        Raises:
            NotFound: The experiment is not in the core.
        """
        experiment = experiment_of(self.core, name)[1]
        if not experiment.changed:
            return program_of(experiment.payload)
        spec = renamed(experiment.payload["spec"], experiment.settings.metric)
        return program_of({**experiment.payload, "spec": spec})

    def published(self, name: ExperimentId) -> bool:
        """Return True if the present state of an experiment in the core is journalled and published to watchers.

        False means that the batch in progress has changed the experiment. `name` is the id of the experiment; for an
        unknown id the result is True.
        """
        return name not in self._changing

    def install(self, stream: Stream, found: RecoveryResult) -> None:
        """Add a stream that was replayed on a core other than the scheduler's.

        If it has not ended, its unanswered external requests are sent again and its timers are started. The agents of the nodes on
        which it had slots or snapshots open new sessions, in which they announce what they have.

        Args:
            stream: The replayed stream.
            found: The result of its replay. Its policy and its unanswered up-calls are taken over.
        """
        places = {slot.node for slot in stream.slots.values()}
        places |= {node for entry in stream.snapshots.entries() for node in entry.nodes}
        outstanding = self.core.admit(stream)
        self.hosts.update(found.hosts)
        for event in found.unanswered:
            self.post(event)
        for call in found.waiting:
            self.await_answer(call)
        for effect in outstanding:
            self.carrier.carry(effect)
        if not stream.state.ended:
            for node in places:
                if (session := self.carrier.sessions.of(node)) is not None:
                    session.close()

    def _let_finished_go(self, changes: Changes) -> None:
        """Release the resources of experiments and streams that ended.

        It closes generators and policy processes, and removes the oldest ended streams from memory while there are more
        than `MAX_FINISHED`.

        Args:
            changes: The changes of the last batch.
        """
        for name in changes.experiments:
            stream, experiment = experiment_of(self.core, ExperimentId(name))
            if experiment.state.ended:
                self.carrier.experiment_ended(experiment.id)
                self._plans.forget(name)
            if not stream.state.ended:
                self._finished.pop(stream.id, None)
            elif stream.id not in self._finished:
                self._finished[stream.id] = None
                self.carrier.stream_ended(stream.id)
                if stream.id in self._asking:  # The experiment was quarantined during the up-call.
                    self._asking.pop(stream.id).cancel()
                if isinstance(self.hosts.get(stream.id), RemotePolicy):
                    del self.hosts[stream.id]
                    closing = asyncio.create_task(
                        self.policies.over(stream.id), name=f"end of the policy of {stream.id}"
                    )
                    self._closing.add(closing)
                    closing.add_done_callback(self._closing.discard)
        while len(self._finished) > MAX_FINISHED:
            name = next(iter(self._finished))
            del self._finished[name]
            self.leaves(self.core.streams[name])
            self.core.forget(name)
            self.hosts.pop(name, None)
            self.journal.forget(name)


def experiment_of(core: Core, name: ExperimentId) -> tuple[Stream, Experiment]:
    """Return the stream of the experiment with the id `name` in the core, and the experiment.

    Raises:
        NotFound: The experiment is not in the core. The message lists the experiments that are.
    """
    found = core.find(name)
    if found is None:
        known = (
            ", ".join(sorted(experiment for stream in core.streams.values() for experiment in stream.experiments))
            or "none"
        )
        raise NotFound(f"there is no experiment {name!r}; there are: {known}")
    return found
