"""The node agent as an object: it creates the parts of the agent, connects them, and starts and stops them in order."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from typing import Final

from hopyard._net.auth.tickets import TicketAuthenticator
from hopyard._net.rpc.values import run_key_to_proto
from hopyard._net.server import Background, Server
from hopyard._net.server.socket_folder import SocketFolder
from hopyard._runtime.datasets.node_query import INSPECT
from hopyard._runtime.job_log import LOGS
from hopyard._runtime.processes.process_family import become_subreaper
from hopyard._runtime.snapshot_file import SnapshotFileError
from hopyard.errors import HopyardError
from hopyard.policy.vocabulary import RunKey
from hopyard.v1 import application_pb2_grpc, node_agent_pb2, node_agent_pb2_grpc
from hopyard.v1 import resource_manager_pb2 as wire
from hopyard_nodeagent import application, servicer
from hopyard_nodeagent.application import ApplicationServicer
from hopyard_nodeagent.bundles import Bundles
from hopyard_nodeagent.cluster_access import ClusterAccess
from hopyard_nodeagent.data.digest_cache import Inspector
from hopyard_nodeagent.data.partitions import NodePartitions
from hopyard_nodeagent.data.url_partitions import Remote
from hopyard_nodeagent.hardware.gpus import GpuMonitor
from hopyard_nodeagent.paths import AgentFolders
from hopyard_nodeagent.predictions.process import PredictorKey, PredictorProcess, start_predictor
from hopyard_nodeagent.predictions.queue import MOST_PROCESSES, PredictionQueue
from hopyard_nodeagent.runs.command_log import CommandRecord
from hopyard_nodeagent.runs.control_group import ControlGroups, writable_root
from hopyard_nodeagent.runs.executor import Executor
from hopyard_nodeagent.runs.logs.answers import LogAnswers
from hopyard_nodeagent.runs.logs.limits import LogLimiter
from hopyard_nodeagent.runs.registry import Runs
from hopyard_nodeagent.runs.run import NodeRun
from hopyard_nodeagent.runs.slots import Slots
from hopyard_nodeagent.runs.training_process import RunnerDied
from hopyard_nodeagent.servicer import NodeAgentServicer
from hopyard_nodeagent.session import SchedulerSession
from hopyard_nodeagent.settings import AgentSettings
from hopyard_nodeagent.snapshots.bulk_transfer import BulkSender
from hopyard_nodeagent.snapshots.disk import File, Snapshots
from hopyard_nodeagent.snapshots.process_images import ProcessImages
from hopyard_nodeagent.snapshots.references import SnapshotReferences
from hopyard_nodeagent.snapshots.store import BlobClient
from hopyard_nodeagent.snapshots.upload_orders import UploadOrders
from hopyard_nodeagent.snapshots.uploads import Shipment, Uploader

_log = logging.getLogger(__name__)

_JANITOR_SECONDS: Final = 1.0
_CHECK_SECONDS: Final = 0.2

ABSENCE_SECONDS: Final = 3.0
"""Seconds for which an agent that is stopping waits for a session with the scheduler."""


class NodeAgent:
    """The agent of one node. Call `start`, then `wait`, then `leave` for an orderly end, then `stop`.

    It implements `SessionOwner`: the session with the scheduler calls it for messages that do not belong to a run.

    Create it in a running event loop. The constructor locks the data folder, cleans up after an earlier agent, and starts nothing.

    Args:
        settings: The settings of the agent: addresses, data folder, slots, quotas and time limits.

    Raises:
        Conflict: Another agent uses the data folder.
    """

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._incarnation = uuid.uuid4().hex
        self._adopted = False
        self._background = Background("agent")
        self._folders = AgentFolders(settings.data)
        idle = settings.transfer_idle_seconds
        self._access = ClusterAccess(settings.scheduler, settings.data)
        self._store = BlobClient(settings.appstat, self._access, idle_seconds=idle)
        needs = SnapshotReferences(self._folders.needs, self._folders.cluster)
        self._snapshots = Snapshots(
            self._folders.snapshots, self._store, needs, tickets=self._access, idle_seconds=idle
        )
        self._adopts = settings.contain and become_subreaper()
        self._slots = Slots(
            settings.slots,
            self._folders,
            attach_seconds=settings.attach_seconds,
            passed=settings.pass_env,
            groups=self._control_groups(),
        )
        bundles = Bundles(self._folders.bundles, self._store)
        self._session = SchedulerSession(self._access, self, backoff=settings.backoff)
        self._partitions = NodePartitions(
            Inspector(self._folders.inspected),
            Remote(self._folders.partitions, settings.data_quota),
            self._background,
            self._session.answer,
        )
        self._images = ProcessImages(settings.criu, self._folders.home, settings.image_memory)
        self._log_limiter = LogLimiter(self._folders.logs)
        self._executor = Executor(
            self._slots,
            self._snapshots,
            bundles,
            self._folders,
            self._partitions,
            self._images,
            self._log_limiter,
            self._access,
        )
        self._executor.lease_seconds = settings.lease_seconds
        self._executor.join_seconds = settings.join_seconds
        self._runs = Runs(
            settings.node,
            self._executor,
            self._snapshots,
            self._background,
            changed=self._say,
            record=CommandRecord(self._folders.commands).add,
        )
        self._log_answers = LogAnswers(self._folders, self._background, self._session.answer)
        self._orders = UploadOrders(self._session.shipped)
        self._shipper = Uploader(self._snapshots, self._store, backoff=settings.backoff, done=self._shipped)
        self._runs.shipper = self._orders.shipper = self._shipper
        self._snapshots.shipping = self._shipper.ships
        self._predictions = PredictionQueue(
            self._start_predictor,
            bundles.folder,
            self._background,
            processes=min(len(settings.slots), MOST_PROCESSES) or 1,
            idle_seconds=settings.idle_runner_seconds,
            say=self._session.answer,
        )
        self._gpus = GpuMonitor(settings.slots, settings.gpu_seconds)
        self._above = 0
        self._roomless = False
        self._tickets = TicketAuthenticator(time.time)
        self._server = Server(
            "agent",
            host=settings.host,
            port=settings.port,
            data=self._folders.data,
            insecure=settings.insecure,
            authenticator=self._tickets,
        )
        # Training processes run on this computer, whatever host the agent listens on.
        self._application_server = Server(
            "application", data=self._folders.data, write_address=False, authenticator=self._slots.tokens
        )
        self._outlet = BulkSender(
            settings.host or SocketFolder(self._folders.data).path / "snapshots.sock", idle_seconds=idle
        )
        node = NodeAgentServicer(
            self._runs,
            self._snapshots,
            self._folders,
            self._outlet,
            status=self._status,
            stopping=self._server.stopping.is_set,
        )
        self._server.add(node_agent_pb2_grpc.add_NodeAgentServiceServicer_to_server, node, servicer.SERVICE)
        self._application_server.add(
            application_pb2_grpc.add_ApplicationServiceServicer_to_server,
            ApplicationServicer(self._slots, self._folders.snapshots),
            application.SERVICE,
        )

    @property
    def address(self) -> str:
        """The address of NodeAgentService, unix:/PATH or HOST:PORT; empty before `start`."""
        return self._server.address

    async def start(self) -> str:
        """Start to listen and to connect to the scheduler, and return the address of NodeAgentService, unix:/PATH or HOST:PORT.

        The scheduler need not be reachable yet.

        Raises:
            Conflict: The agent cannot listen at its host and port.
            HopyardError: The scheduler is at a TCP port, and there is no token for it (`ClusterAccess.check_token`).
        """
        self._access.check_token()
        self._slots.application_address = await self._application_server.start()
        address = await self._server.start()
        self._outlet.start()
        self._shipper.start(self._background)
        self._gpus.start()
        self._background.start(self._keep_tidy(), name="janitor")
        self._background.start(self._log_limiter.serve(), name="log limits")
        self._background.start(self._session.serve(self._runs), name="session")
        self._background.start(self._prepare(), name="spare runners")
        return address

    async def wait(self, stop: asyncio.Event) -> None:
        """Wait until the event `stop` is set. If a part of the agent fails, raise its error."""
        await self._background.wait(stop)

    async def leave(self, grace: float) -> bool:
        """Announce to the scheduler that the agent is stopping, and wait until nothing on this node is needed any more.

        The scheduler suspends the runs at their next boundary and orders uploads of the snapshots that no other node has. Without a
        session the agent waits at most `ABSENCE_SECONDS` for the next one, and not at all if it has no runs, messages and uploads. An
        error of a part of the agent ends the wait too; `stop` raises it.

        Args:
            grace: Maximum time in seconds.

        Returns:
            Whether the scheduler has answered that nothing is needed any more. If not, `stop` ends the runs that are left as LOST.
        """
        if grace <= 0:
            return False
        self._runs.leaving = True
        self._session.leave()
        left = asyncio.create_task(self._await_release(), name="leave")
        failed = asyncio.create_task(self._background.wait(asyncio.Event()), name="failure")
        try:
            await asyncio.wait((left, failed), timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (left, failed):
                task.cancel()
            await asyncio.gather(left, failed, return_exceptions=True)
        released = self._session.released.is_set()
        if not released and self._busy:
            runs, uploads = self._runs.executing, self._shipper.waiting
            _log.warning("the scheduler has not released this node: %d runs and %d uploads are left", runs, uploads)
        return released

    @property
    def _busy(self) -> bool:
        return bool(self._runs.executing or self._runs.unacknowledged() or self._shipper.waiting)

    async def _await_release(self) -> None:
        """Wait until the scheduler has released the node, or is absent."""
        released = asyncio.create_task(self._session.released.wait(), name="released")
        absent = 0.0
        try:
            while not released.done():
                absent = 0.0 if self._session.connected else absent + _CHECK_SECONDS
                if not self._session.connected and not (self._busy and absent <= ABSENCE_SECONDS):
                    return
                await asyncio.wait((released,), timeout=_CHECK_SECONDS)
        finally:
            released.cancel()

    async def stop(self, *, flush: bool = True) -> None:
        """Stop in order: refuse new runs, end all processes, send the last messages, close connections. Safe to call twice.

        Args:
            flush: Whether to wait until the scheduler has acknowledged all messages of runs, at most `flush_seconds`.
        """
        self._gpus.stop()
        self._partitions.stop()
        await self._predictions.stop()
        await self._runs.stop()
        await self._slots.kill_all()
        await self._snapshots.in_memory.wait()
        self._images.clear()
        if flush:
            await self._flush()
        try:
            await self._background.stop()
        finally:
            self._outlet.stop()
            await self._server.stop()
            await self._application_server.stop(grace=0)
            await self._store.close()
            await self._snapshots.close()
            await self._access.close()
            self._folders.close()

    # Implementation of `SessionOwner`.

    def hello(self, epoch: int) -> wire.AgentHello:
        """Return the first message of a session with the scheduler: the agent's identity, slots, runs, snapshots and known epoch.

        `epoch` is the highest epoch of the scheduler that the agent has seen; 0: none.
        """
        return wire.AgentHello(
            node=self._settings.node,
            incarnation=self._incarnation,
            address=self.address,
            slots=self._slot_messages(),
            runs=[run_key_to_proto(run.key) for run in self._runs.all()],
            snapshots=self._snapshots.hashes(),
            epoch=epoch,
            home=self._folders.home,
            bundles=True,
            gpus=self._gpus.devices(),
            cluster="" if self._settings.adopt and not self._adopted else self._folders.cluster,
        )

    def heartbeat(self) -> wire.AgentHeartbeat:
        """Return a heartbeat with the use of the GPUs, if it was measured since the last one."""
        return wire.AgentHeartbeat(gpus=self._gpus.take())

    def welcomed(self, welcome: wire.AgentWelcome) -> None:
        """Handle the scheduler's first message of a session.

        Its lease, if set, is the time without a message from the agent after which the processes of later runs consider the agent as
        lost.

        From now on the agent accepts the tickets that this scheduler issues, and its data folder belongs to the scheduler's cluster.
        Predictions that have not begun are dropped; the scheduler requests those again that it still needs.
        """
        self._predictions.new_session()
        self._tickets.key = welcome.ticket_key
        adopt, self._adopted = self._settings.adopt and not self._adopted, True
        if welcome.cluster and (adopt or welcome.cluster != self._folders.cluster):
            # Snapshots first: if the agent is killed in between, its folder still names the old cluster, so the scheduler refuses it.
            self._snapshots.belong_to(welcome.cluster, adopt=adopt)
            self._folders.belong_to(welcome.cluster)
        if welcome.lease_seconds > 0:
            self._executor.lease_seconds = welcome.lease_seconds

    async def discard_runs(self) -> list[RunKey]:
        """End all runs, and drop everything that the scheduler of a lost history has not acknowledged; return the keys of the runs.

        Predictions are cancelled and their answers dropped: the restored scheduler may use their tickets for other questions.
        From now on the agent has another incarnation, so that the scheduler does not expect anything of the earlier one. Snapshots
        stay: the scheduler uses those that it knows.
        """
        self._shipper.forget_all()
        self._orders.discard()
        await self._predictions.discard()
        discarded = await self._runs.discard()
        self._incarnation = uuid.uuid4().hex
        return discarded

    def forget_snapshots(self, hashes: list[str]) -> None:
        """Delete snapshots that the scheduler no longer needs.

        A snapshot that a run or a transfer uses is deleted after this use. A snapshot is kept while the scheduler has not acknowledged
        the message in which a run announces that it took the snapshot.
        At an invalid hash, an error is logged, and the later hashes are ignored.
        """
        try:
            self._snapshots.forget(hashes)
        except HopyardError as error:
            _log.error("the scheduler asks to forget what is no snapshot: %s", error)

    def ordered(self, orders: list[wire.ShipmentOrder]) -> None:
        """Upload the snapshots that these orders of the scheduler name. No run on this node refers to the snapshots any more.

        The result of each order is sent to the scheduler, and again in each session until it is acknowledged.
        """
        self._orders.take(orders)

    def shipment_acknowledged(self, experiment: str, number: int) -> None:
        """Drop the result of an upload order that the scheduler has acknowledged; orders of an experiment are numbered."""
        self._orders.acknowledged(experiment, number)

    def unacknowledged_shipments(self) -> list[wire.SnapshotShipped]:
        """Return the results of upload orders that the scheduler has not acknowledged yet."""
        return self._orders.unacknowledged()

    def inventory(self, wanted: wire.ListNodeSnapshots) -> None:
        """Send the scheduler a list of the unused snapshots, or of those that it names.

        Unused means neither in use nor about to be uploaded or announced to the scheduler. Snapshots of another cluster are omitted.

        `wanted` is the scheduler's request: the minimum time in seconds without use, and whether to delete partial files, which an
        interrupted transfer left; or the hashes of the snapshots. An error of reading the folder is logged, and nothing is sent.
        """
        if not self._background.stopping:
            self._background.start(self._inventory(wanted), name="inventory")

    async def _inventory(self, wanted: wire.ListNodeSnapshots) -> None:
        try:
            if wanted.sha256:
                idle = await self._snapshots.named(wanted.sha256)
            else:
                idle = await self._snapshots.idle(wanted.older_than_seconds)
            partials = [one for one in idle if not one.sha256]
            inventory = wire.SnapshotInventory(
                ticket=wanted.ticket,
                files=[self._described(one) for one in idle if one.sha256],
                partials=len(partials),
                partial_bytes=sum(one.size for one in partials),
            )
            self._session.found(inventory)
            if wanted.delete_partials:
                await self._snapshots.remove_partials(partials)
        except (SnapshotFileError, OSError) as error:
            _log.warning("the scheduler asks what lies in the snapshot folder, which cannot be read: %s", error)

    def _described(self, snapshot: File) -> wire.SnapshotFile:
        return wire.SnapshotFile(
            sha256=snapshot.sha256,
            size_bytes=snapshot.size,
            experiments=self._snapshots.experiments(snapshot.sha256),
            unused_seconds=max(time.time() - snapshot.used_at, 0.0),
        )

    def asked(self, question: wire.NodeQuestion) -> None:
        """Start to answer a question of the scheduler, and send the answer when it is known.

        The question requests a prediction, an inspection (size, hash and number of examples of the files at paths or URLs), or the
        size or the deletion of logs. Other questions are answered with an error.
        """
        if question.kind == "predict":
            self._predictions.ask(question)
        elif question.kind == LOGS:
            self._log_answers.ask(question)
        elif question.kind == INSPECT:
            self._partitions.ask(question)
        else:
            error = f"this agent answers no questions of kind {question.kind!r}"
            self._session.answer(wire.NodeAnswer(ticket=question.ticket, error=error))

    def withdrawn(self, ticket: str) -> None:
        """Cancel the prediction with this ticket (the id of the question), which the scheduler no longer needs.

        A running prediction is interrupted; no answer is sent.
        """
        self._predictions.withdraw(ticket)

    async def _start_predictor(self, key: PredictorKey) -> PredictorProcess:
        left = self._slots.processes
        process = await start_predictor(
            key, self._folders.predictor_log, passed=self._settings.pass_env, started=left.note, over=left.forget
        )
        await process.make()
        return process

    def _say(self, run: NodeRun) -> None:
        self._session.changed(run)

    def _shipped(self, shipment: Shipment, error: str) -> None:
        (self._orders if shipment.order else self._runs).shipped(shipment, error)

    def _slot_messages(self) -> list[wire.Slot]:
        return [
            wire.Slot(
                id=slot.id,
                node=self._settings.node,
                cpus=slot.cpus,
                gpus=[device.index for device in slot.gpus],
                hardware=slot.hardware,
            )
            for slot in self._slots.settings()
        ]

    async def _status(self) -> node_agent_pb2.GetStatusResponse:
        node = wire.Node(
            id=self._settings.node,
            address=self.address,
            state=wire.NODE_STATE_LEAVING if self._session.leaving else wire.NODE_STATE_UP,
            slots=self._slot_messages(),
            incarnation=self._incarnation,
            gpus=self._gpus.devices(),
        )
        by_id = {slot.id: slot for slot in node.slots}
        for run in self._runs.all():
            slot = by_id.get(run.start.slot)
            if slot is not None and not run.over:
                slot.experiment, slot.job, slot.attempt, slot.rank = run.key
                slot.world = max(run.start.world, 1)
        return node_agent_pb2.GetStatusResponse(
            node=node,
            runs=[run_key_to_proto(run.key) for run in self._runs.all()],
            connected=self._session.connected,
            unacknowledged=self._runs.unacknowledged(),
            snapshot_bytes=await self._snapshots.size_bytes(),
        )

    async def _prepare(self) -> None:
        try:
            await self._slots.prepare(self._settings.spare_runners)
        except (RunnerDied, OSError) as error:  # A run that needs a process reports the error itself.
            _log.warning("no process can be started before there is a run for it: %s", error)

    async def _keep_tidy(self) -> None:
        while True:
            await asyncio.sleep(_JANITOR_SECONDS)
            await self._slots.end_idle(self._settings.idle_runner_seconds)
            await self._predictions.end_idle()
            self._end_adopted()
            if self._settings.snapshot_quota is not None:
                await self._make_room(self._settings.snapshot_quota)

    def _control_groups(self) -> ControlGroups:
        """Return the control groups of the agent, after logging how processes that leave the session of their run are found."""
        root = writable_root() if self._settings.contain else None
        if self._settings.contain:
            how = f"by control groups in {root}" if root is not None else "by a variable (no control group is writable)"
            _log.info("child processes that leave the session of their run are found %s", how)
        return ControlGroups(self._folders.home, root)

    def _end_adopted(self) -> None:
        if self._adopts and (ended := self._slots.adopted.look()):
            _log.warning("ended %d processes that belonged to no run any more: %s", len(ended), ended)

    async def _make_room(self, quota: int) -> None:
        try:
            deleted, above = await self._snapshots.make_room(quota)
        except (HopyardError, SnapshotFileError, OSError) as error:
            if not self._roomless:
                _log.warning("no room can be made in the snapshot folder just now: %s", error)
            self._roomless = True
            return
        self._roomless = False
        if deleted:
            _log.info("%d copies of stored snapshots were deleted to keep within --snapshot-quota", len(deleted))
            self._session.evicted(deleted)
        if above and not self._above:
            _log.warning(
                "snapshots take %d bytes more than --snapshot-quota: they are not stored yet, or in use", above
            )
        self._above = above

    async def _flush(self) -> None:
        """Wait until the scheduler has acknowledged all messages of runs, at most `flush_seconds`; then log how many it has not.

        Return at once if there is no session.
        """
        if not self._session.connected:
            return
        try:
            async with asyncio.timeout(self._settings.flush_seconds):
                await self._runs.wait_acknowledged()
        except TimeoutError:
            _log.warning("%d messages were not acknowledged when the agent stopped", self._runs.unacknowledged())
