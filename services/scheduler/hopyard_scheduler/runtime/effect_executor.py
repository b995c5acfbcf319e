"""Execution of effects: commands and acknowledgements to agents, external requests, timers, deletions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from hopyard._net.rpc.values import run_key_to_proto
from hopyard.policy.vocabulary import ExperimentId, StreamId
from hopyard.v1 import resource_manager_pb2
from hopyard_engine.core import Core
from hopyard_engine.core.actions.prediction_requests import PREDICT
from hopyard_engine.core.effects import (
    Acknowledge,
    AcknowledgeShipment,
    AskOutside,
    Effect,
    ForgetSnapshot,
    Noted,
    OrdersGiven,
    Refused,
    Send,
    SetTimer,
    Start,
    Welcome,
    WithdrawQuestion,
)
from hopyard_engine.core.events import Event, TimerElapsed
from hopyard_engine.core.handlers.commands import CREATE_JOB
from hopyard_scheduler.agents.sessions import Sessions
from hopyard_scheduler.converters import command_to_proto, order_to_proto
from hopyard_scheduler.experiments.program import ExperimentProgram
from hopyard_scheduler.external_requests.generator_client import Generators
from hopyard_scheduler.external_requests.predictions.dispatcher import PredictionDispatcher
from hopyard_scheduler.external_requests.solver_dispatcher import Solvers
from hopyard_scheduler.runtime.journal import Journal
from hopyard_scheduler.storage.snapshot_deletion import SnapshotStore

_LOG = logging.getLogger(__name__)


class Carrier:
    """Carries out effects after their events are in the journal.

    Args:
        journal: Provides the epoch that each command carries.
        sessions: The sessions through which commands are sent.
        store: Deletes snapshots from the store.
        generators: Requests configurations.
        predictions: Requests predictions of learning curves.
        solvers: Sends all other external requests of policies to solvers.
        heartbeat_seconds: Interval of the agents' heartbeats.
        clock: Returns seconds since the Unix epoch.
    """

    def __init__(
        self,
        journal: Journal,
        sessions: Sessions,
        store: SnapshotStore,
        generators: Generators,
        predictions: PredictionDispatcher,
        solvers: Solvers,
        heartbeat_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self.sessions = sessions
        self.stranger: Callable[[str, str], None] = lambda node, sha256: None
        """Called with a node and a hash for each snapshot on a node that no experiment in the core knows."""
        self.welcomed: Callable[[str], None] = lambda node: None
        """Called with each node that has received its welcome."""
        self._journal = journal
        self._store = store
        self._generators = generators
        self._predictions = predictions
        self._solvers = solvers
        self._heartbeat_seconds = heartbeat_seconds
        self._clock = clock
        self._timers: dict[tuple[str, str], asyncio.TimerHandle] = {}

    def attach(
        self, core: Core, post: Callable[[Event], None], program: Callable[[ExperimentId], ExperimentProgram]
    ) -> None:
        """Connects the core and the event queue; must be called before any effect is carried out.

        Args:
            core: The core.
            post: Queues an event.
            program: Returns the program of an experiment.
        """
        self._core = core
        self._post = post
        self._program = program
        self._generators.attach(core, post)
        self._predictions.attach(core, post, program)
        self._solvers.attach(post)

    async def clear(self, effects: Iterable[Effect]) -> None:
        """Deletes snapshots from the store that a batch no longer needs, before its other effects are carried out."""
        await self._store.delete(effect for effect in effects if isinstance(effect, ForgetSnapshot))

    def carry(self, effect: Effect) -> None:
        """Carries out one effect of a journalled event.

        Raises:
            TypeError: The effect is not an outward effect.
        """
        match effect:
            case Send():
                self._send(effect)
            case Acknowledge():
                self._acknowledge(effect)
            case AcknowledgeShipment():
                self._acknowledge_shipment(effect)
            case Welcome():
                self._welcome(effect)
            case OrdersGiven():
                self._order(effect.node)
            case AskOutside() if effect.kind == CREATE_JOB:
                self._generators.ask(effect)
            case AskOutside() if effect.kind == PREDICT:
                self._predictions.ask(effect)
            case WithdrawQuestion():
                self._predictions.withdraw(effect.stream, effect.ticket)
                self._solvers.withdraw(effect.stream, effect.ticket)
            case AskOutside():
                self._solvers.ask(effect)
            case SetTimer():
                self._set_timer(effect)
            case ForgetSnapshot() if not effect.stream:
                for node in effect.nodes:
                    self.stranger(node, effect.sha256)
            case ForgetSnapshot():
                self._forget(effect)
            case Noted() | Refused():
                _LOG.info("experiment %s, job %s: %s", effect.stream, effect.job or "-", effect.reason)
            case _:
                raise TypeError(f"effect {type(effect).__name__} is not an outward effect")

    def experiment_ended(self, experiment: ExperimentId) -> None:
        """Closes the generator of a finished experiment, and releases its cached curves and its solver queue."""
        self._generators.close(experiment)
        self._predictions.ended(experiment)

    def stream_ended(self, stream: StreamId) -> None:
        """All experiments of a stream are over: its policy asks nothing more."""
        self._solvers.ended(stream)

    def stop(self) -> None:
        """Cancels timers and stops accepting requests to predictors and solvers."""
        self._predictions.stop()
        self._solvers.stop()
        for handle in self._timers.values():
            handle.cancel()
        self._timers.clear()

    def _send(self, send: Send) -> None:
        session = self.sessions.of(send.node)
        gang = send.body.rank_nodes if isinstance(send.body, Start) else ()
        # A gang's start names the addresses of all its nodes, so it waits until each has connected to this scheduler.
        if session is not None and all(node in self.sessions.addresses for node in gang):
            program = self._program(self._core.streams[send.run.stream].jobs[send.run.job].experiment.id)
            command = command_to_proto(
                send.run, send.sequence, self._journal.epoch, send.body, program, self.sessions.addresses
            )
            session.send(resource_manager_pb2.AgentSessionResponse(command=command))

    def _acknowledge(self, ack: Acknowledge) -> None:
        """Sends an acknowledgement to the node of its channel.

        If the job no longer exists, nothing is sent: the next welcome reports the channel as unknown.
        """
        stream = self._core.streams.get(ack.run.stream)
        job = stream.jobs.get(ack.run.job) if stream is not None else None
        channel = job.channels.get((ack.run.attempt, ack.run.rank)) if job is not None else None
        session = self.sessions.of(channel.node) if channel is not None else None
        if session is not None:
            message = resource_manager_pb2.ChannelAck(run=run_key_to_proto(ack.run), sequence=ack.sequence)
            session.send(resource_manager_pb2.AgentSessionResponse(ack=message))

    def _acknowledge_shipment(self, ack: AcknowledgeShipment) -> None:
        session = self.sessions.of(ack.node)
        if session is not None:
            message = resource_manager_pb2.ShipmentAck(experiment=ack.stream, number=ack.order)
            session.send(resource_manager_pb2.AgentSessionResponse(shipment_ack=message))

    def _welcome(self, welcome: Welcome) -> None:
        session = self.sessions.of(welcome.node)
        if session is None:
            return
        message = resource_manager_pb2.AgentWelcome(
            epoch=self._journal.epoch,
            lease_seconds=self.sessions.lease_seconds,
            heartbeat_seconds=self._heartbeat_seconds,
            unknown_runs=[run_key_to_proto(key) for key in welcome.unknown],
            bundles=True,
        )
        session.welcome(resource_manager_pb2.AgentSessionResponse(welcome=message))
        self._predictions.joined()
        for node in (welcome.node, *self._core.partners(welcome.node)):
            for send in self._core.unacknowledged(node):
                self._send(send)
        self._order(welcome.node)
        self.welcomed(welcome.node)

    def _order(self, node: str) -> None:
        session = self.sessions.of(node)
        orders = [order_to_proto(order) for order in self._core.orders(node)]
        if session is not None and orders:
            ship = resource_manager_pb2.ShipSnapshots(orders=orders)
            session.send(resource_manager_pb2.AgentSessionResponse(ship_snapshots=ship))

    def _set_timer(self, timer: SetTimer) -> None:
        key = (timer.stream, timer.ticket)
        running = self._timers.pop(key, None)
        if running is not None:
            running.cancel()
        if timer.at is not None:
            delay = max(timer.at - self._clock(), 0.0)
            self._timers[key] = asyncio.get_running_loop().call_later(delay, self._elapsed, key, timer.at)

    def _elapsed(self, key: tuple[StreamId, str], due: float) -> None:
        self._timers.pop(key, None)
        self._post(TimerElapsed(max(self._clock(), due), *key))

    def _forget(self, effect: ForgetSnapshot) -> None:
        for node in effect.nodes:
            session = self.sessions.of(node)
            if session is not None:
                forget = resource_manager_pb2.ForgetSnapshots(sha256=[effect.sha256])
                session.send(resource_manager_pb2.AgentSessionResponse(forget_snapshots=forget))
