"""The scheduler service: recovery from the journal, gRPC servers, lease monitoring and ordered shutdown."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from hopyard._net.auth import CallerKind, find_token
from hopyard._net.rpc import channel
from hopyard._net.server import Background, Server
from hopyard._runtime.processes.process_limits import DEFAULT_MEMORY_BYTES, ResourceLimits
from hopyard.v1 import (
    appstat_pb2_grpc,
    data_pb2_grpc,
    experiment_pb2_grpc,
    hpgen_pb2_grpc,
    job_manager_pb2_grpc,
    policy_pb2_grpc,
    resource_manager_pb2_grpc,
)
from hopyard_engine.core.cluster.nodes import ClusterNodeState
from hopyard_engine.core.events import DrainExpired, NodeExpired, NodeForgotten
from hopyard_scheduler.agents.node_queries import Inspections
from hopyard_scheduler.agents.nodes import Nodes
from hopyard_scheduler.agents.session_requests import SessionRequests
from hopyard_scheduler.agents.sessions import Session, Sessions
from hopyard_scheduler.agents.slot_reservations import SlotReservations
from hopyard_scheduler.agents.tickets import TicketIssuer
from hopyard_scheduler.data.catalog import INTERVAL_SECONDS, Catalog
from hopyard_scheduler.experiments.archive_import import Importer
from hopyard_scheduler.experiments.commands import ExperimentCommands
from hopyard_scheduler.experiments.deletion import ExperimentDeletion
from hopyard_scheduler.experiments.queries import ExperimentQueries
from hopyard_scheduler.external_requests.generator_client import Generators
from hopyard_scheduler.external_requests.predictions.dispatcher import PredictionDispatcher
from hopyard_scheduler.external_requests.predictions.prior_curves import PriorCurves
from hopyard_scheduler.external_requests.predictions.probe import Predictors
from hopyard_scheduler.external_requests.solver_dispatcher import Solvers
from hopyard_scheduler.policy_process.connections import REQUEST_BYTES, ConnectionRegistry
from hopyard_scheduler.policy_process.policy import Limits
from hopyard_scheduler.policy_process.registry import PolicyProcesses
from hopyard_scheduler.runtime.effect_executor import EffectExecutor
from hopyard_scheduler.runtime.journal import Journal
from hopyard_scheduler.runtime.recovery import recover
from hopyard_scheduler.runtime.runtime import DEFAULT_POLICY_SECONDS, Runtime
from hopyard_scheduler.search_plan.reader import PlanReader
from hopyard_scheduler.servicers.data import DataServicer
from hopyard_scheduler.servicers.experiments import ExperimentServicer
from hopyard_scheduler.servicers.jobs import JobManagerServicer
from hopyard_scheduler.servicers.policies import PolicyServicer
from hopyard_scheduler.servicers.resource_manager import ResourceManagerServicer
from hopyard_scheduler.storage.garbage_collection import GarbageCollector
from hopyard_scheduler.storage.inventories import Inventories
from hopyard_scheduler.storage.snapshot_deletion import SnapshotStore
from hopyard_scheduler.storage.store_quota import StoreQuota
from hopyard_scheduler.storage.unneeded_copies import DEFAULT_GRACE_SECONDS, UnneededCopies

_LOG = logging.getLogger(__name__)

DEFAULT_ABSENCE_SECONDS = 30.0
DEFAULT_LEASE_SECONDS = 10.0
DEFAULT_HEARTBEAT_SECONDS = 1.0
DEFAULT_FORGET_SECONDS = 86400.0
NODES_SECONDS = 1.0
"""Maximum seconds between two checks of the deadlines of drains and of the time since nodes were lost."""
EPOCH_SECONDS = 2.0
"""Seconds between two checks that no newer scheduler has begun an epoch."""


class SchedulerService:
    """The scheduler service. It creates its components, connects them, and starts and stops them in order.

    Call `start` once, then `wait` until the service is to end, then `stop`.

    Args:
        appstat: Address of AppStatService.
        hpgen: Address of HyperparameterGeneratorService.
        host: Address of a TCP port to listen on, which requires `insecure`; None: a Unix socket in `data`.
        port: TCP port to listen on; 0: any free port.
        data: Folder into which the service writes the file `scheduler.address` with its address; None: no file.
        insecure: Whether to allow TCP without encryption.
        lease_seconds: Seconds without a message after which a node is lost.
        heartbeat_seconds: Seconds between two heartbeats of an agent.
        forget_seconds: Seconds after which a lost node is removed from the list of nodes, unless it is drained.
        data_seconds: Seconds between two requests to each node for the list of its data partitions; greater than 0.
        policy_seconds: Seconds that a policy process may take to answer one up-call. If it takes longer, its experiment
            is paused.
        absence_seconds: Seconds that the scheduler waits for a needed policy process to connect. If it takes longer,
            the experiment is paused.
        policy_memory: Maximum physical memory in bytes of a policy process that the scheduler starts, with its children; 0: no limit.
        store_quota: Maximum number of bytes in the store for the snapshots of all experiments; 0: no limit; None: the
            quota that AppStat has stored.
        grace_seconds: Seconds without use after which a snapshot on a node is deleted of which the cluster has no record.
    """

    def __init__(
        self,
        *,
        appstat: str,
        hpgen: str,
        host: str | None = None,
        port: int = 0,
        data: Path | None = None,
        insecure: bool = False,
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        heartbeat_seconds: float = DEFAULT_HEARTBEAT_SECONDS,
        forget_seconds: float = DEFAULT_FORGET_SECONDS,
        policy_seconds: float = DEFAULT_POLICY_SECONDS,
        data_seconds: float = INTERVAL_SECONDS,
        absence_seconds: float = DEFAULT_ABSENCE_SECONDS,
        policy_memory: int = DEFAULT_MEMORY_BYTES,
        store_quota: int | None = None,
        grace_seconds: float = DEFAULT_GRACE_SECONDS,
    ) -> None:
        self._server = Server(
            "scheduler", host=host, port=port, data=data, insecure=insecure, request_bytes=REQUEST_BYTES
        )
        self._background = Background("scheduler")
        self._appstat = channel(appstat, token=partial(find_token, CallerKind.SERVICE, appstat, data))
        self._hpgen = channel(hpgen, token=partial(find_token, CallerKind.SERVICE, hpgen, data))
        self._appstat_stub: appstat_pb2_grpc.AppStatServiceAsyncStub = appstat_pb2_grpc.AppStatServiceStub(
            self._appstat
        )
        self._sessions = Sessions(lease_seconds, time.monotonic)
        self._sessions.left.append(self._agent_left)
        self._forget_seconds = forget_seconds
        self._tickets = TicketIssuer(self._sessions, lambda: self._server.secrets, time.time)
        journal = Journal(self._appstat_stub)
        self._generators = Generators(
            hpgen_pb2_grpc.HyperparameterGeneratorServiceStub(self._hpgen), self._background, time.time
        )
        self._registry = ConnectionRegistry()
        limits = Limits(policy_seconds, absence_seconds)
        self._policies = PolicyProcesses(
            self._registry,
            lambda: self.address,
            self._server.tokens,
            self._appstat_stub,
            limits,
            ResourceLimits(policy_memory),
        )
        predictors = Predictors(self._policies.unpacked)
        self._predictions = PredictionDispatcher(
            self._sessions, self._background, time.time, PriorCurves(self._appstat_stub), predictors
        )
        self._carrier = EffectExecutor(
            journal,
            self._sessions,
            SnapshotStore(self._appstat_stub),
            self._generators,
            self._predictions,
            Solvers(self._background, time.time),
            self._tickets,
            heartbeat_seconds,
            time.time,
        )
        self._runtime = Runtime(journal, self._carrier, self._policies)
        self._inspections = Inspections(self._sessions)
        self._catalog = Catalog(
            self._runtime,
            self._sessions,
            self._inspections,
            appstat_pb2_grpc.CatalogServiceStub(self._appstat),
            self._background,
            data_seconds,
        )
        self._carrier.welcomed = self._welcomed
        plans = PlanReader(appstat_pb2_grpc.SearchPlanServiceStub(self._appstat), self._appstat_stub)
        look = ExperimentQueries(self._runtime, self._appstat_stub, appstat)
        self._commands = ExperimentCommands(
            self._runtime, look, self._generators, predictors, self._catalog, plans, self._appstat_stub
        )
        self._given_quota = store_quota
        self._quota = StoreQuota(self._runtime, look, self._appstat_stub, self._commands.loaded)
        self._runtime.batched, self._runtime.leaves = self._quota.changed, self._quota.leaves
        look.warning = lambda: self._quota.warning
        self._inventories = Inventories()
        self._garbage = GarbageCollector(
            self._runtime, self._sessions, look, self._appstat_stub, self._inventories, self._quota
        )
        self._copies = UnneededCopies(
            self._runtime, self._sessions, look, self._appstat_stub, self._inventories, self._background, grace_seconds
        )
        self._deletion = ExperimentDeletion(
            self._runtime,
            self._commands,
            self._appstat_stub,
            self._sessions,
            self._inspections,
            self._copies,
            self._quota,
            self._background,
        )
        self._importer = Importer(self._runtime, self._commands, self._appstat_stub)
        self._carrier.on_unknown_snapshot = self._copies.found
        self._add_servicers()

    def _add_servicers(self) -> None:
        add = self._server.add
        slots = SlotReservations(self._runtime)
        add(
            experiment_pb2_grpc.add_ExperimentServiceServicer_to_server,
            ExperimentServicer(self._commands, self._garbage, self._importer, self._deletion),
            "hopyard.v1.ExperimentService",
        )
        add(
            job_manager_pb2_grpc.add_JobManagerServiceServicer_to_server,
            JobManagerServicer(self._runtime, self._commands),
            "hopyard.v1.JobManagerService",
        )
        add(
            resource_manager_pb2_grpc.add_ResourceManagerServiceServicer_to_server,
            ResourceManagerServicer(
                slots,
                Nodes(self._runtime, self._sessions, slots),
                self._sessions,
                SessionRequests(
                    self._runtime,
                    self._sessions,
                    self._inventories,
                    self._predictions,
                    self._catalog,
                    self._inspections,
                ),
                self._tickets,
            ),
            "hopyard.v1.ResourceManagerService",
        )
        add(
            policy_pb2_grpc.add_PolicyServiceServicer_to_server,
            PolicyServicer(self._registry, self._runtime),
            "hopyard.v1.PolicyService",
        )
        add(data_pb2_grpc.add_DataServiceServicer_to_server, DataServicer(self._catalog), "hopyard.v1.DataService")

    def _welcomed(self, node: str) -> None:
        self._catalog.joined(node)
        self._deletion.joined(node)

    @property
    def address(self) -> str:
        """The address on which the service listens, unix:/PATH or HOST:PORT; empty before `start` has returned."""
        return self._server.address

    async def start(self) -> str:
        """Begin a scheduler epoch, recover all unfinished experiments from the journal, and listen.

        It waits for AppStat without a time limit. It needs neither the generator service nor agents, so the services
        can start in any order.

        Returns:
            The address on which the service listens, unix:/PATH or HOST:PORT.

        Raises:
            HopyardError: The journal of the cluster cannot be replayed, another scheduler has begun a newer epoch or uses the data
                folder, or the service cannot listen on its address.
        """
        # A second scheduler on the same data folder must not begin an epoch, which would end the first one.
        self._server.lock()
        # The tokens of the data folder are those of AppStat and hpgen, which may start later.
        self._server.make_secrets()
        self._tickets.load_key()
        await self._policies.start()
        epoch = await self._runtime.journal.begin(f"{socket.gethostname()}:{os.getpid()}")
        self._generators.restored = self._runtime.journal.restored
        found = await recover(self._runtime.core, self._runtime.journal, self._appstat_stub)
        await self._catalog.load()
        self._runtime.hosts.update(found.hosts)
        for node, known in self._runtime.core.cluster.nodes.items():
            if known.lost_at is None:
                self._sessions.seen(node)
        await self._runtime.journal.append([], found.rows, self._runtime.clock())
        for event in found.unanswered:
            self._runtime.post(event)
        for call in found.waiting:
            self._runtime.await_answer(call)
        for name, difference in found.diverged.items():
            _LOG.error("experiment %s pauses: its policy decides differently than recorded: %s", name, difference)
        for event in found.follow_up_events(self._runtime.core, self._runtime.clock()):
            self._runtime.post(event)
        self._background.start(self._runtime.run(), name="events")
        for effect in found.outstanding:
            self._carrier.carry(effect)
        self._background.start(self._watch_leases(), name="leases")
        self._background.start(self._watch_nodes(), name="nodes")
        self._background.start(self._watch_epoch(), name="epoch")
        self._background.start(self._catalog.run(), name="catalog")
        if self._given_quota is not None:
            await self._quota.set(self._given_quota)
        self._background.start(self._quota.run(), name="quota of the store")
        self._background.start(self._copies.run(), name="unneeded copies")
        self._deletion.resume()
        address = await self._server.start()
        _LOG.info("scheduler epoch %d with %d live experiments on %s", epoch, len(self._runtime.core.streams), address)
        return address

    async def wait(self, stop: asyncio.Event) -> None:
        """Wait until `stop` is set or a background task fails. Raise the error of the task in the second case."""
        await self._background.wait(stop)

    async def stop(self, grace: float = 5.0) -> None:
        """Stop the service in order. Further calls have no effect.

        It closes the agent sessions and the connections of policy processes, refuses new RPCs, journals the queued
        events, and closes the connections to the other services.

        Args:
            grace: Seconds to wait for open RPCs to end, and then again for the queued events to be journalled.
        """
        self._sessions.close()
        self._registry.close()
        try:
            await self._server.stop(grace)
            if self._background.failure is None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(grace):
                        await self._runtime.drained()
            self._carrier.stop()
            await self._background.stop()
            await self._policies.close()
        finally:
            await self._appstat.close()
            await self._hpgen.close()

    async def _watch_epoch(self) -> None:
        """Check every `EPOCH_SECONDS` that no newer scheduler has begun an epoch; raise StaleEpoch if one has.

        So a superseded scheduler stops even if it has nothing to write to the journal.
        """
        while True:
            await asyncio.sleep(EPOCH_SECONDS)
            await self._runtime.journal.confirm()

    async def _watch_leases(self) -> None:
        """Submit the event `NodeExpired` for each node whose lease expires. Run until cancelled.

        Time in which this process was stalled does not count, because it could not read heartbeats.
        """
        interval = self._sessions.lease_seconds / 4
        self._sessions.tick(interval)  # Recovery was no stall.
        while True:
            await asyncio.sleep(interval)
            if (stall := self._sessions.tick(interval)) > interval:
                _LOG.warning("stalled for %.1f s, which the leases of nodes do not include", stall)
            for node in self._sessions.expired():
                _LOG.warning("node %s is silent for %.1f s: lost", node, self._sessions.silent_seconds(node))
                self._sessions.forget(node)
                await self._runtime.submit(NodeExpired(self._runtime.clock(), node))

    async def _watch_nodes(self) -> None:
        """Submit an event for each drain whose deadline passes, and for each node that was lost long ago. Run until cancelled.

        A lost node that is drained stays in the list, because a person has not finished with it.
        """
        while True:
            await asyncio.sleep(min(self._sessions.lease_seconds / 4, NODES_SECONDS))
            now = self._runtime.clock()
            for name, node in list(self._runtime.core.cluster.nodes.items()):
                drain = node.drain
                if drain is not None and drain.deadline is not None and drain.deadline <= now and not drain.expired:
                    await self._runtime.submit(DrainExpired(now, name))
                elif drain is None and node.lost_at is not None and now - node.lost_at >= self._forget_seconds:
                    _LOG.info("node %s was lost %.0f s ago and is forgotten", name, now - node.lost_at)
                    await self._runtime.submit(NodeForgotten(now, name))
                    self._sessions.drop(name)

    def _agent_left(self, session: Session) -> None:
        """Declare the node of an ended session lost at once if its agent was stopping and nothing on it was needed any more."""
        cluster = self._runtime.core.cluster
        node = cluster.nodes.get(session.node)
        replaced = self._sessions.of(session.node) is not None
        if node is None or replaced or node.leaving != session.incarnation or session.node in cluster.unreleased:
            return
        if self._runtime.core.node_state(session.node) is ClusterNodeState.LEAVING:
            self._sessions.forget(session.node)
            self._runtime.post(NodeExpired(self._runtime.clock(), session.node))
