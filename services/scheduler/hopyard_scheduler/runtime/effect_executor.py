"""Execution of outward effects: effects that concern something outside the core and its journal.

They are commands and acknowledgements to agents, external requests, timers, and snapshot deletions.
"""

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
    NodeReleased,
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
from hopyard_scheduler.agents.tickets import TicketIssuer
from hopyard_scheduler.converters import command_to_proto, order_to_proto
from hopyard_scheduler.experiments.program import ExperimentProgram
from hopyard_scheduler.external_requests.generator_client import Generators
from hopyard_scheduler.external_requests.predictions.dispatcher import PredictionDispatcher
from hopyard_scheduler.external_requests.solver_dispatcher import Solvers
from hopyard_scheduler.runtime.journal import Journal
from hopyard_scheduler.storage.snapshot_deletion import SnapshotStore

_LOG = logging.getLogger(__name__)


class EffectExecutor:
    """Carries out the outward effects of events after the events are in the journal.

    Outward effects concern something outside the core and its journal, such as commands to agents and timers.

    Call `attach` first. For each batch, call `clear` with all its effects and then `carry` with each effect in order.

    Args:
        journal: Provides the scheduler epoch that each command to an agent contains.
        sessions: The agent sessions through which commands are sent.
        store: Deletes snapshots from the store.
        generators: Requests configurations from generators.
        predictions: Requests predictions of learning curves from predictors.
        solvers: Sends all other external requests of policies to solvers.
        tickets: Returns the keys of nodes for tickets, which welcome messages contain.
        heartbeat_seconds: Interval of the agents' heartbeats, announced in the welcome message of each session.
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
        tickets: TicketIssuer,
        heartbeat_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self.sessions = sessions
        self.on_unknown_snapshot: Callable[[str, str], None] = lambda node, sha256: None
        """Called with the node and the hash of each snapshot on a node that is unknown to the core."""
        self.welcomed: Callable[[str], None] = lambda node: None
        """Called with the id of each node to which the welcome message was sent."""
        self._journal = journal
        self._store = store
        self._generators = generators
        self._predictions = predictions
        self._solvers = solvers
        self._tickets = tickets
        self._heartbeat_seconds = heartbeat_seconds
        self._clock = clock
        self._timers: dict[tuple[str, str], asyncio.TimerHandle] = {}

    def attach(
        self, core: Core, post: Callable[[Event], None], program: Callable[[ExperimentId], ExperimentProgram]
    ) -> None:
        """Connect the core and the event queue. It must be called before any other method.

        Args:
            core: The state machine of the engine, from which commands to runs and upload orders are read.
            post: Adds an event to the scheduler's queue.
            program: Returns the program of an experiment.
        """
        self._core = core
        self._post = post
        self._program = program
        self._generators.attach(core, post)
        self._predictions.attach(core, post, program)
        self._solvers.attach(post)

    async def clear(self, effects: Iterable[Effect]) -> None:
        """Delete from the store the snapshots that the ForgetSnapshot effects of a batch name.

        It must run before the other effects of the batch are carried out. Effects of other kinds are ignored.
        """
        await self._store.delete(effect for effect in effects if isinstance(effect, ForgetSnapshot))

    def carry(self, effect: Effect) -> None:
        """Carry out one effect of a journalled event.

        Raises:
            TypeError: The effect is not an outward effect, that is, one that concerns something outside the core and
                its journal, such as a command to an agent.
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
            case NodeReleased():
                self._release(effect.node)
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
                    self.on_unknown_snapshot(node, effect.sha256)
            case ForgetSnapshot():
                self._forget(effect)
            case Noted() | Refused():
                _LOG.info("experiment %s, job %s: %s", effect.stream, effect.job or "-", effect.reason)
            case _:
                raise TypeError(f"effect {type(effect).__name__} is not an outward effect")

    def experiment_ended(self, experiment: ExperimentId) -> None:
        """Close the generator of an ended experiment and release its cached learning curves."""
        self._generators.close(experiment)
        self._predictions.ended(experiment)

    def stream_ended(self, stream: StreamId) -> None:
        """Release the solver queue of a stream whose experiments have all ended."""
        self._solvers.ended(stream)

    def stop(self) -> None:
        """Cancel all timers. Further requests to predictors and solvers are ignored, without an error."""
        self._predictions.stop()
        self._solvers.stop()
        for handle in self._timers.values():
            handle.cancel()
        self._timers.clear()

    def _send(self, send: Send) -> None:
        session = self.sessions.of(send.node)
        gang = send.body.rank_nodes if isinstance(send.body, Start) else ()
        # The start of a gang contains the addresses of all its nodes, so it is not sent before each has connected.
        if session is not None and all(node in self.sessions.addresses for node in gang):
            program = self._program(self._core.streams[send.run.stream].jobs[send.run.job].experiment.id)
            command = command_to_proto(
                send.run, send.sequence, self._journal.epoch, send.body, program, self.sessions.addresses
            )
            session.send(resource_manager_pb2.AgentSessionResponse(command=command))

    def _acknowledge(self, ack: Acknowledge) -> None:
        """Send an acknowledgement to the node of its channel. Nothing is sent if the node is not connected.

        Nothing is sent either if the job no longer exists: the next welcome message to the node reports the channel as
        unknown.
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
        session, known = self.sessions.of(welcome.node), self._core.cluster.nodes.get(welcome.node)
        if session is None or known is None or session.incarnation != known.incarnation:
            # A restarted agent has opened this session. It gets its own welcome after the core has handled its announcement;
            # before, the core would repeat the commands to runs of the earlier incarnation.
            return
        message = resource_manager_pb2.AgentWelcome(
            epoch=self._journal.epoch,
            lease_seconds=self.sessions.lease_seconds,
            heartbeat_seconds=self._heartbeat_seconds,
            unknown_runs=[run_key_to_proto(key) for key in welcome.unknown],
            bundles=True,
            ticket_key=self._tickets.node_key(welcome.node),
            cluster=self._journal.cluster,
            history=self._journal.history,
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

    def _release(self, node: str) -> None:
        session = self.sessions.of(node)
        if session is not None:
            session.send(resource_manager_pb2.AgentSessionResponse(released=resource_manager_pb2.AgentReleased()))

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
