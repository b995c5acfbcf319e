"""Deletion of experiments.

The event `StreamDeleted` and the deletion of the rows and the journal of a stream are one transaction of AppStat. What is not in the
database is deleted after it: blobs in the store, and snapshots and logs on nodes. The cluster's journal records when the store is
done, so a restarted scheduler continues. A node that was not connected deletes its logs when it connects.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hopyard._runtime.job_log import LogQuery
from hopyard.client.transfer.blobs import BUNDLE_OWNER
from hopyard.errors import Conflict, HopyardError, InvalidInput
from hopyard.policy.vocabulary import ExperimentId, ExperimentState, StreamId
from hopyard.v1 import appstat_pb2, experiment_pb2
from hopyard_engine.core.events import DeletionCompleted, StreamDeleted
from hopyard_scheduler.converters import EXPERIMENT_STATES
from hopyard_scheduler.experiments.watchers import Watcher
from hopyard_scheduler.request_ids import check_request_id
from hopyard_scheduler.runtime.journal import persist
from hopyard_scheduler.runtime.projections import was_unreadable

if TYPE_CHECKING:
    from hopyard._net.server import Background
    from hopyard.v1 import appstat_pb2_grpc
    from hopyard_scheduler.agents.node_queries import Inspections
    from hopyard_scheduler.agents.sessions import Sessions
    from hopyard_scheduler.experiments.commands import ExperimentCommands
    from hopyard_scheduler.runtime.runtime import Runtime
    from hopyard_scheduler.storage.store_quota import StoreQuota
    from hopyard_scheduler.storage.unneeded_copies import UnneededCopies

_LOG = logging.getLogger(__name__)

_STOP_SECONDS: Final = 60.0
_STREAMS: Final = 1000
_NODES: Final = 100


@dataclass(frozen=True, slots=True)
class _Stream:
    """The experiments of one stream, as clients see them, in order of creation."""

    id: StreamId
    experiments: tuple[experiment_pb2.Experiment, ...]

    @property
    def names(self) -> tuple[ExperimentId, ...]:
        return tuple(ExperimentId(one.id) for one in self.experiments)

    @property
    def bundles(self) -> tuple[str, ...]:
        return tuple(sorted({one.bundle for one in self.experiments if one.bundle}))


class ExperimentDeletion:
    """Deletes experiments that have ended.

    Args:
        runtime: The event loop of the scheduler.
        commands: Stops paused experiments, and loads streams.
        stub: Client of AppStat.
        sessions: The agent sessions of nodes.
        nodes: Requests the sizes and the deletion of logs from nodes.
        copies: Deletes snapshots on nodes.
        quota: Reads the contents of the store again after a deletion.
        background: Runs the tasks that delete blobs and logs; they continue if a client cancels its request.
    """

    def __init__(
        self,
        runtime: Runtime,
        commands: ExperimentCommands,
        stub: appstat_pb2_grpc.AppStatServiceAsyncStub,
        sessions: Sessions,
        nodes: Inspections,
        copies: UnneededCopies,
        quota: StoreQuota,
        background: Background,
    ) -> None:
        self._runtime = runtime
        self._commands = commands
        self._stub = stub
        self._sessions = sessions
        self._nodes = nodes
        self._copies = copies
        self._quota = quota
        self._background = background
        self._under_way: set[asyncio.Task[list[experiment_pb2.DeletedExperiments]]] = set()
        self._one = asyncio.Lock()

    async def delete(
        self, names: Sequence[str], *, force: bool, dry_run: bool, request: str
    ) -> list[experiment_pb2.DeletedExperiments]:
        """Delete experiments, and return one entry for each stream (experiment or group) with what was deleted.

        The call returns when the blobs in the store and the logs on connected nodes are deleted, or their deletion failed; it is then
        tried again later. Simultaneous calls run one after another.

        Args:
            names: Ids of the experiments; at least one. Of a group, all must be named.
            force: Also delete paused experiments, which are stopped first.
            dry_run: Change nothing; return what would be deleted.
            request: Idempotency key; empty only with `dry_run`. For experiments that an earlier call with this key deleted, the
                result has entries with only their ids.

        Raises:
            InvalidInput: No experiment is named, or the idempotency key is empty or too long.
            NotFound: An experiment does not exist.
            Conflict: An experiment has not ended, or a member of its group is not named, or it did not end within `_STOP_SECONDS`
                seconds after it was stopped. Nothing is deleted.
        """
        if not names:
            raise InvalidInput("experiments: name at least one")
        if request or not dry_run:
            check_request_id(request)
        wanted = list(dict.fromkeys(names))
        async with self._one:
            before = self._deleted_by(request) if request else {}
            present = [name for name in wanted if name not in before]
            repeated = [
                experiment_pb2.DeletedExperiments(experiments=event.experiments)
                for event in {before[name].stream: before[name] for name in wanted if name in before}.values()
            ]
            streams = await self._find_deletable(present, force=force, unreadable=force)
            if dry_run:
                return repeated + await self._measure(streams)
            await self._stop_paused(streams)
            # A client that gives up must not interrupt it between the core, the journal and the positions of its streams.
            deleting = asyncio.create_task(self._delete(streams, request), name="deletion")
            self._under_way.add(deleting)
            deleting.add_done_callback(self._under_way.discard)
            return repeated + await asyncio.shield(deleting)

    def resume(self) -> None:
        """Start to delete the blobs of deleted streams for which no `DeletionCompleted` is recorded; call it once at the start."""
        for event in list(self._runtime.core.cluster.open_deletions.values()):
            self._background.start(self._finish(event), name=f"deletion of {event.stream}")

    def joined(self, node: str) -> None:
        """Start to delete the logs of deleted experiments on a node that has connected, and return at once."""
        if self._runtime.core.cluster.deletions:
            self._background.start(self._clear_logs(node), name=f"logs of {node}")

    async def storage(self) -> list[experiment_pb2.DeletedExperiments]:
        """Return the storage that each experiment or group uses: rows, journal, snapshots, bundles and logs. Nothing is deleted."""
        everything = await self._commands.queries.show_all()
        by_stream: dict[str, list[experiment_pb2.Experiment]] = {}
        for one in reversed(everything):
            by_stream.setdefault(one.group or one.id, []).append(one)
        streams = [_Stream(StreamId(stream), tuple(members)) for stream, members in by_stream.items()]
        return await self._measure(streams, together=False)

    # ---------------------------------------------------------------------------------------------------------- inside

    def _deleted_by(self, request: str) -> dict[str, StreamDeleted]:
        """Return, by id, the experiments that an earlier call with this idempotency key deleted."""
        events = self._runtime.core.cluster.deletions.values()
        return {name: event for event in events if event.request == request for name in event.experiments}

    async def _find_deletable(self, names: Sequence[str], *, force: bool, unreadable: bool) -> list[_Stream]:
        """Return the streams of experiments, each with all its experiments, after checking that they may be deleted.

        Raises:
            NotFound: An experiment does not exist.
            Conflict: An experiment has not ended (with `force`: and is not paused; with `unreadable`: and is not paused because its
                journal cannot be read), or `names` lacks a member of its group.
        """
        streams: dict[str, None] = {}
        for name in names:
            shown = await self._commands.queries.show(name)
            streams[shown.group or shown.id] = None
        everything = await self._commands.queries.show_all() if names else []
        found = []
        for stream in streams:
            members = [one for one in reversed(everything) if (one.group or one.id) == stream]
            missing = [one.id for one in members if one.id not in names]
            if missing:
                raise Conflict(
                    f"{_and(one.id for one in members if one.id in names)} shares its policy, journal and snapshots with "
                    f"{_and(missing)} (share), so they are deleted together: name {'it' if len(missing) == 1 else 'them'} too"
                )
            for one in members:
                _need_end(one, force or (unreadable and was_unreadable(one)))
            found.append(_Stream(StreamId(stream), tuple(members)))
        return found

    async def _stop_paused(self, streams: Iterable[_Stream]) -> None:
        """Stop the paused experiments of streams, and wait until they have ended.

        Raises:
            Conflict: An experiment has not ended within `_STOP_SECONDS` seconds.
        """
        paused = [one for stream in streams for one in stream.experiments if not _ended(one)]
        for name in (one.id for one in paused if not was_unreadable(one)):
            await self._commands.operate(name, "stop")
            try:
                async with asyncio.timeout(_STOP_SECONDS):
                    async for _ in self._commands.queries.watch(name, Watcher()):
                        pass  # It ends with the experiment.
            except TimeoutError as error:
                raise Conflict(
                    f"experiment {name} is stopped, but still ends, because snapshots or runs are on nodes; delete it later"
                ) from error

    async def _delete(self, streams: Sequence[_Stream], request: str) -> list[experiment_pb2.DeletedExperiments]:
        """Delete streams, wait for the store and the connected nodes, and return what was deleted.

        Raises:
            Conflict: An experiment of the streams continues again, or another one has joined a group. Nothing is deleted.
        """
        async with AsyncExitStack() as stack:
            for stream in sorted(streams, key=lambda one: one.id):
                await stack.enter_async_context(self._commands.loading(stream.id))
            # Another client may have continued an experiment, or added one to a group.
            await self._find_deletable(
                [name for stream in streams for name in stream.names], force=False, unreadable=True
            )
            measured = await self._measure(streams)
            snapshots = [await self._snapshots(stream) for stream in streams]
            at = self._runtime.clock()
            events = [StreamDeleted(at, one.id, one.names, one.bundles, request) for one in streams]
            if not await self._runtime.delete(events):
                raise Conflict(
                    "an experiment was continued or joined a group meanwhile, so nothing was deleted; try again"
                )
        self._commands.give_back(name for stream in streams for name in stream.names)
        self._quota.reread()
        for session in self._sessions.connected():
            for sha256 in (one for hashes in snapshots for one in hashes):
                self._copies.released(session.node, sha256)
        # A client that gives up must not interrupt them.
        ends = [self._background.start(self._finish(event), name=f"deletion of {event.stream}") for event in events]
        logs = [
            self._background.start(self._clear_logs(session.node), name=f"logs of {session.node}")
            for session in self._sessions.connected()
        ]
        if ends:
            await asyncio.wait([*ends, *logs])
        return measured

    async def _finish(self, event: StreamDeleted) -> None:
        """Delete the blobs of a deleted stream, and record `DeletionCompleted`. It waits for AppStat without a time limit.

        An error is logged; the next start of the scheduler tries again.
        """
        try:
            await self._release(event)
        except HopyardError as error:
            _LOG.warning(
                "the store still has blobs of %s, until the scheduler starts again: %s", _and(event.experiments), error
            )

    async def _release(self, event: StreamDeleted) -> None:
        released = appstat_pb2.ReleaseBlobsRequest(owner=event.stream)
        await persist(lambda: self._stub.ReleaseBlobs(released))
        for bundle in event.bundles:
            async with self._commands.unused(bundle) as unused:
                if unused:
                    code = appstat_pb2.ReleaseBlobsRequest(owner=BUNDLE_OWNER, sha256=[bundle])
                    await persist(lambda code=code: self._stub.ReleaseBlobs(code))  # type: ignore[misc]
        await self._runtime.apply(DeletionCompleted(self._runtime.clock(), event.stream))
        _LOG.info("%s was deleted", _and(event.experiments))

    async def _clear_logs(self, node: str) -> None:
        """Request from a node to delete the logs of all deleted experiments.

        An error is logged; when the node connects again, `joined` repeats the request.
        """
        try:
            known = {one.group or one.id for one in await self._commands.queries.show_all()}
            gone = [name for name in self._runtime.core.cluster.deletions if name not in known]
            for start in range(0, len(gone), _STREAMS):
                await self._nodes.logs(node, LogQuery(delete=tuple(gone[start : start + _STREAMS])))
        except HopyardError as error:
            _LOG.warning("logs of deleted experiments stay on node %s until it connects again: %s", node, error)

    async def _snapshots(self, stream: _Stream) -> set[str]:
        jobs = [job for name in stream.names for job in await self._commands.queries.jobs(name)]
        return {snapshot.sha256 for job in jobs for snapshot in job.snapshots}

    async def _measure(
        self, streams: Sequence[_Stream], *, together: bool = True
    ) -> list[experiment_pb2.DeletedExperiments]:
        """Return the storage that each stream uses, in their order.

        Args:
            streams: The streams.
            together: True: all of them are deleted in one call, so code bundles that only they use are counted, once. False: for each
                stream only the code bundles that no other experiment uses are counted.
        """
        if not streams:
            return []
        bundles = await self._bundles(streams, together=together)
        logs, absent = await self._logs(streams)
        found = []
        for start in range(0, len(streams), _STREAMS):
            part = streams[start : start + _STREAMS]
            request = appstat_pb2.QueryStorageRequest()
            for stream, own in zip(part, bundles[start:], strict=False):
                request.streams.add(stream=stream.id, experiments=stream.names, bundles=own)
            answer = await self._stub.QueryStorage(request)
            for stream, asked, use in zip(part, request.streams, answer.streams, strict=True):
                count, size = logs.get(stream.id, (0, 0))
                found.append(
                    experiment_pb2.DeletedExperiments(
                        experiments=stream.names,
                        jobs=use.jobs,
                        reports=use.reports,
                        records=use.records,
                        journal_bytes=use.journal_bytes,
                        snapshots=use.snapshots,
                        snapshot_bytes=use.snapshot_bytes,
                        shared_snapshots=use.shared_snapshots,
                        shared_bytes=use.shared_bytes,
                        shared_with=use.shared_with,
                        bundles=len(asked.bundles),
                        bundle_bytes=use.bundle_bytes,
                        logs=count,
                        log_bytes=size,
                        absent_nodes=absent,
                    )
                )
        return found

    async def _bundles(self, streams: Sequence[_Stream], *, together: bool) -> list[list[str]]:
        """Return the code bundles that the deletion of each stream deletes.

        Args:
            streams: The streams.
            together: True: all of them are deleted in one call; a bundle that several of them use is listed for the first one. False:
                each is considered alone; such a bundle is listed for none.

        Returns:
            The hashes of the bundles that no other experiment uses, for each stream.
        """
        named = {name for stream in streams for name in stream.names}
        everything = await self._commands.queries.show_all()
        used = Counter({one.bundle for one in everything if one.id not in named})
        if not together:
            used.update(bundle for stream in streams for bundle in stream.bundles)
        found = []
        for stream in streams:
            own = [bundle for bundle in stream.bundles if used[bundle] == (0 if together else 1)]
            found.append(own)
            if together:
                used.update(own)
        return found

    async def _logs(self, streams: Sequence[_Stream]) -> tuple[dict[str, tuple[int, int]], list[str]]:
        """Measure the logs of streams on all connected nodes.

        Returns:
            (number of logs, their bytes) by stream, without streams that have no logs; and the ids, at most `_NODES`, of the nodes that
            are not connected or did not answer.
        """
        query = LogQuery(measure=tuple(stream.id for stream in streams))
        connected = [session.node for session in self._sessions.connected()]
        absent = [node for node in self._runtime.core.cluster.nodes if node not in connected]
        total: dict[str, tuple[int, int]] = {}
        answers = await asyncio.gather(*(self._nodes.logs(node, query) for node in connected), return_exceptions=True)
        for node, answer in zip(connected, answers, strict=True):
            if isinstance(answer, HopyardError):
                absent.append(node)
                continue
            if isinstance(answer, BaseException):
                raise answer
            for stream, (count, size) in answer.items():
                before = total.get(stream, (0, 0))
                total[stream] = (before[0] + count, before[1] + size)
        return total, sorted(absent)[:_NODES]


def _ended(experiment: experiment_pb2.Experiment) -> bool:
    return EXPERIMENT_STATES.from_proto(experiment.state).ended


def _need_end(experiment: experiment_pb2.Experiment, force: bool) -> None:
    """Raise Conflict unless an experiment has ended, or is paused and `force` is True."""
    state = EXPERIMENT_STATES.from_proto(experiment.state)
    name = experiment.id
    if state.ended or (force and state is ExperimentState.PAUSED):
        return
    if state is ExperimentState.PAUSED:
        raise Conflict(
            f"experiment {name} is PAUSED and can continue; hopyard rm --force {name} deletes it with its unfinished jobs"
        )
    if state is ExperimentState.ENDING:
        raise Conflict(f"experiment {name} is ending; wait until it has ended: hopyard wait {name}")
    raise Conflict(
        f"experiment {name} is {state.value}; only ended experiments are deleted: run `hopyard stop {name}` first"
    )


def _and(names: Iterable[str]) -> str:
    return ", ".join(names)
