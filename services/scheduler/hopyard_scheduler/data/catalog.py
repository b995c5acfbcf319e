"""The catalog of data sets: their partitions, the nodes that have replicas, and the notification of experiments whose replicas changed.

AppStat stores the registered data sets. The state of replicas is not stored: the catalog queries nodes when they
connect, after a registration, and periodically. Until a node has answered after a restart of the scheduler, an
experiment uses the last state of the replicas that its journal recorded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from hopyard._net.rpc import retry
from hopyard._net.server import Background
from hopyard._runtime.datasets.node_query import PathQuery
from hopyard.errors import AlreadyExists, Conflict, HopyardError, InvalidInput, NotFound
from hopyard.v1 import appstat_pb2, data_pb2
from hopyard_engine.core.events import DataChanged
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.types import PlacedData, PlacedPartition
from hopyard_scheduler.agents.node_queries import Inspections
from hopyard_scheduler.agents.sessions import Sessions
from hopyard_scheduler.data import dataset_validation
from hopyard_scheduler.runtime.journal import persist
from hopyard_scheduler.runtime.runtime import Runtime

if TYPE_CHECKING:
    from hopyard.v1 import appstat_pb2_grpc

_LOG = logging.getLogger(__name__)

INTERVAL_SECONDS: Final = 5.0
"""Seconds between two queries to each node."""

ARRIVAL_SECONDS: Final = 5.0
"""Maximum seconds for which a registration waits for nodes to connect."""

_Key = tuple[str, str]
"""The name of a data set and the name of one of its partitions."""


class Catalog:
    """The data sets of the cluster and the state of their replicas.

    Call `load` once, then start `run` as a task: it queries the nodes periodically until it is cancelled.

    Args:
        runtime: The event loop of the scheduler; receives `DataChanged` events.
        sessions: The agent sessions of nodes.
        inspections: Sends path queries to nodes.
        stub: Client of the catalog service of AppStat.
        background: Runs the queries as background tasks.
        interval: Seconds between two queries to each node; greater than 0.
    """

    def __init__(
        self,
        runtime: Runtime,
        sessions: Sessions,
        inspections: Inspections,
        stub: appstat_pb2_grpc.CatalogServiceAsyncStub,
        background: Background,
        interval: float = INTERVAL_SECONDS,
    ) -> None:
        self._runtime = runtime
        self._sessions = sessions
        self._inspections = inspections
        self._stub = stub
        self._background = background
        self._interval = interval
        self._kept: dict[str, appstat_pb2.KeptDataSet] = {}
        self._held: dict[str, dict[_Key, str]] = {}  # By node: the error of each replica; empty: no error.
        self._asking: dict[str, bool] = {}  # Nodes with a pending query; True: query again afterwards.
        self._lives: dict[str, str] = {}
        self._troubles: dict[str, str] = {}  # By node: the last error of a query, logged once.
        self._arrival = asyncio.Event()
        self._changes: set[asyncio.Task[None]] = set()
        self._names: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.using = asyncio.Lock()
        """Locked while an experiment with data is created, so that its data set is not dropped at the same time."""

    # -------------------------------------------------------------------------------------------------------------- queries

    async def load(self) -> None:
        """Read the registered data sets from AppStat. It waits for AppStat without a time limit."""
        token = ""
        while True:
            request = appstat_pb2.QueryDataSetsRequest(page_token=token)
            page = await persist(lambda request=request: self._stub.QueryDataSets(request))  # type: ignore[misc]
            self._kept.update((one.data.name, one) for one in page.data)
            token = page.next_page_token
            if not token:
                return

    def show(self, name: str) -> data_pb2.DataSet:
        """Return a data set with the state of its replicas and the ids of the unfinished experiments that use it.

        Raises:
            NotFound: The data set is not registered. The message lists the registered ones.
        """
        kept = self._kept.get(name)
        if kept is None:
            raise NotFound(self._unknown(name))
        shown = data_pb2.DataSet()
        shown.CopyFrom(kept.data)
        shown.experiments.extend(sorted(m for stream in self._users(name) for m in stream.experiments))
        for one in shown.partitions:
            for replica in one.replicas:
                replica.state, replica.detail = self._state((name, one.name), replica.node)
            if one.url:
                holders = (node for node in sorted(self._held) if self._holds(node, (name, one.name)))
                one.replicas.extend(
                    data_pb2.DataReplica(node=node, path=one.url, state=data_pb2.REPLICA_STATE_PRESENT)
                    for node in holders
                )
        return shown

    def show_all(self) -> list[data_pb2.DataSet]:
        """Return all data sets with the states of their replicas, sorted by name."""
        return [self.show(name) for name in sorted(self._kept)]

    def place(self, name: str) -> PlacedData:
        """Return a data set with the paths of its intact replicas by node, for the first record of a new experiment's journal.

        Raises:
            InvalidInput: The data set is not registered. The message lists the registered ones.
        """
        if name not in self._kept:
            raise InvalidInput(f"data: {self._unknown(name)}")
        return PlacedData(name, tuple(self._placed(name, one, None) for one in self._kept[name].data.partitions))

    # ------------------------------------------------------------------------------------------------------------ changes

    async def register(self, data: data_pb2.DataSet, request: str) -> data_pb2.DataSet:
        """Register a data set after its nodes have read the files. Return it with sizes, hashes and the state of its replicas.

        Args:
            data: The data set. Sizes and hashes are ignored, except for URLs with a given hash, which are not read.
            request: Idempotency key: a repeated call returns the registered data set.

        Raises:
            InvalidInput: Names are invalid, nodes are unknown, files are missing, or replicas of one partition differ.
                The message lists all errors.
            AlreadyExists: Another data set has this name.
            Conflict: A node that has a replica is not connected.
        """
        wanted = dataset_validation.checked(data, request)
        async with self._names.setdefault(data.name, asyncio.Lock()):
            known = self._kept.get(data.name)
            if known is not None:
                if known.request_id == request:
                    return self.show(data.name)
                raise AlreadyExists(
                    f"there is a data set {data.name!r} already; take another name, or drop it first (hopyard data drop)"
                )
            await self._need_nodes(wanted)
            inspected = await dataset_validation.inspected(wanted, self._inspections.ask, self._connected())
            inspected.registered_at = self._runtime.clock()
            await self._whole(self._keep(inspected, request))
        for node in self._connected():  # Other nodes may have copies of URLs.
            self.look(node)
        self.refresh()
        return self.show(data.name)

    async def drop(self, name: str) -> None:
        """Remove a data set from the catalog. Its files on the nodes stay.

        Raises:
            NotFound: The data set is not registered.
            Conflict: An unfinished experiment uses it.
        """
        async with self.using, self._names.setdefault(name, asyncio.Lock()):
            if name not in self._kept:
                raise NotFound(self._unknown(name))
            users = [experiment for stream in self._users(name) for experiment in stream.experiments]
            if users:
                raise Conflict(f"data set {name} is used by {', '.join(sorted(users))}; stop that first")
            await self._whole(self._forget(name))

    async def _keep(self, data: data_pb2.DataSet, request: str) -> None:
        put = appstat_pb2.PutDataSetRequest(data=data, request_id=request)
        kept = (await retry(lambda: self._stub.PutDataSet(put), deadline=None)).data
        self._kept[kept.name] = appstat_pb2.KeptDataSet(data=kept, request_id=request)
        for one in kept.partitions:
            for replica in one.replicas:
                self._held.setdefault(replica.node, {})[kept.name, one.name] = ""

    async def _forget(self, name: str) -> None:
        request = appstat_pb2.DeleteDataSetRequest(name=name)
        await retry(lambda: self._stub.DeleteDataSet(request), deadline=None)
        del self._kept[name]
        for held in self._held.values():
            for key in [key for key in held if key[0] == name]:
                del held[key]

    async def _whole(self, change: Coroutine[Any, Any, None]) -> None:
        """Run a change to its end even if the caller is cancelled, so that AppStat and this scheduler have the same data sets.

        An error of the change is raised. A cancelled caller gets CancelledError at once, and the change continues without it.
        """
        task = asyncio.create_task(change, name="catalog change")
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        await asyncio.shield(task)

    # ------------------------------------------------------------------------------------------------------------ replicas

    async def run(self) -> None:
        """Query all connected nodes for their replicas every `interval` seconds until cancelled.

        Each time, notify the unfinished experiments whose recorded replica places differ from the present ones.
        """
        while True:
            await asyncio.sleep(self._interval)
            for node in self._connected():
                self.look(node)
            self.refresh()

    def joined(self, node: str) -> None:
        """Query a node that has opened a session for its replicas.

        If its agent was restarted, the replicas that the earlier agent process reported are discarded first.
        """
        session = self._sessions.of(node)
        if session is None:
            return
        if self._lives.setdefault(node, session.incarnation) != session.incarnation:
            self._lives[node] = session.incarnation
            self._held[node] = {}
        self._arrival.set()
        self._arrival = asyncio.Event()
        self.look(node)

    def look(self, node: str) -> None:
        """Start a background query of a node for its replicas. If one is running, one more follows when it ends.

        If the query fails, for example because the node is not connected, the error is logged unless it is the same as
        the last one, and the known state of the replicas stays.
        """
        if node in self._asking:
            self._asking[node] = True
            return
        self._asking[node] = False
        self._background.start(self._look(node), name=f"partitions of {node}")

    async def _look(self, node: str) -> None:
        try:
            again = True
            while again:
                self._asking[node] = False
                await self._ask(node)
                again = self._asking[node]
        except HopyardError as error:
            if self._troubles.get(node) != str(error):
                _LOG.warning("the partitions on node %s cannot be checked: %s", node, error)
            self._troubles[node] = str(error)
        finally:
            del self._asking[node]
        self.refresh()

    async def _ask(self, node: str) -> None:
        expected: dict[_Key, PathQuery] = {}
        for name, kept in self._kept.items():
            for one in kept.data.partitions:
                path = next((replica.path for replica in one.replicas if replica.node == node), one.url)
                if path:
                    expected[name, one.name] = PathQuery(path, one.sha256)
        answers = await self._inspections.ask(node, list(expected.values()))
        held: dict[_Key, str] = {}
        for (key, wanted), found in zip(expected.items(), answers, strict=True):
            changed = f"{wanted.place}: found {found.size} bytes with the hash {found.sha256}, not what was registered"
            held[key] = found.error or (changed if found.sha256 != wanted.sha256 else "")
        self._held[node] = held

    def refresh(self) -> None:
        """Post the event `DataChanged` for each unfinished experiment whose recorded replica places differ from the present ones."""
        for node in self._held:
            if not self._is_up(node):
                self._held[node] = {}
        for stream in list(self._runtime.core.streams.values()):
            if stream.data is None or stream.state.ended:
                continue
            kept = self._kept.get(stream.data.name)
            now = {one.name: one for one in kept.data.partitions} if kept is not None else {}
            changed = []
            for known in stream.data.partitions.values():
                one = now.get(known.name)
                # A partition with other content belongs to another data set.
                if one is None or one.sha256 != known.sha256:
                    placed = PlacedPartition(known.name, known.size, known.sha256, known.examples)
                else:
                    placed = self._placed(stream.data.name, one, known)
                if placed != known:
                    changed.append(placed)
            if changed:
                self._runtime.post(DataChanged(self._runtime.clock(), stream.id, tuple(changed)))

    def _placed(self, name: str, one: data_pb2.DataPartition, known: PlacedPartition | None) -> PlacedPartition:
        paths = {replica.node: replica.path for replica in one.replicas}
        if one.url:
            paths = dict.fromkeys(self._runtime.core.cluster.nodes, one.url)
        places = {
            node: path
            for node, path in sorted(paths.items())
            if self._is_up(node) and self._holds(node, (name, one.name), known)
        }
        return PlacedPartition(
            one.name,
            one.size_bytes,
            one.sha256,
            one.examples if one.HasField("examples") else None,
            places,
            tuple(sorted(replica.node for replica in one.replicas)),
            one.url,
        )

    def _holds(self, node: str, key: _Key, known: PlacedPartition | None = None) -> bool:
        """Return True if a node has an intact replica of a partition.

        Args:
            node: The id of the node.
            key: Names of the data set and the partition.
            known: The partition with the nodes that an experiment last recorded. It decides if the node has not
                answered a query yet; None: the result is False in this case.
        """
        held = self._held.get(node)
        if held is None:
            return known is not None and node in known.places
        return held.get(key) == ""

    def _state(self, key: _Key, node: str) -> tuple[data_pb2.ReplicaState.ValueType, str]:
        if not self._is_up(node):
            return data_pb2.REPLICA_STATE_AWAY, f"node {node} is not connected"
        wrong = self._held.get(node, {}).get(key)
        if wrong is None:
            return data_pb2.REPLICA_STATE_UNKNOWN, f"node {node} has not said yet"
        return (data_pb2.REPLICA_STATE_BROKEN, wrong) if wrong else (data_pb2.REPLICA_STATE_PRESENT, "")

    # ------------------------------------------------------------------------------------------------------------ internals

    def _is_up(self, name: str) -> bool:
        node = self._runtime.core.cluster.nodes.get(name)
        return node is not None and node.up

    def _connected(self) -> list[str]:
        return [session.node for session in self._sessions.connected() if session.ready]

    def _users(self, name: str) -> list[Stream]:
        """Return the unfinished streams whose data set has this name and at least one partition (name and hash) of the registered one.

        A stream that only uses partitions of an earlier registration with the same name is not included.
        """
        kept = self._kept.get(name)
        content = {(one.name, one.sha256) for one in kept.data.partitions} if kept is not None else set()
        return [
            stream
            for stream in self._runtime.core.streams.values()
            if stream.data is not None
            and stream.data.name == name
            and not stream.state.ended
            and any((one.name, one.sha256) in content for one in stream.data.partitions.values())
        ]

    def _unknown(self, name: str) -> str:
        there = ", ".join(sorted(self._kept)) or "none"
        return f"there is no data set {name!r}; there are: {there} (hopyard data register)"

    async def _need_nodes(self, wanted: Sequence[dataset_validation.WantedPartition]) -> None:
        named = {node for part in wanted for node, _ in part.replicas}
        known = self._runtime.core.cluster.nodes

        def awaited() -> bool:
            """Return True while a needed node may still connect: it is up or unknown, or no node is connected yet."""
            there = self._connected()
            return not there or any(node not in known or self._is_up(node) for node in named.difference(there))

        with suppress(TimeoutError):
            async with asyncio.timeout(ARRIVAL_SECONDS):
                while awaited():
                    await self._arrival.wait()
        strange = sorted(named - known.keys())
        if strange:
            there = ", ".join(sorted(known)) or "none"
            raise InvalidInput(
                f"there {'is no node' if len(strange) == 1 else 'are no nodes'} {', '.join(strange)}; there are: {there}"
            )
        away = sorted(named - set(self._connected()))
        if away:
            raise Conflict(
                f"{', '.join(away)} {'is' if len(away) == 1 else 'are'} not connected, so nobody can look at its files; start its "
                "agent, or register without it"
            )
